"""prepare folds weight, bias and statistics into one scale and shift."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void fold(const float* g, const float* b, const float* mean, const float* var, float* scale,
                                float* shift, int c, float eps) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    scale[j] = g[j] / sqrtf(var[j] + eps);
    shift[j] = b[j] - mean[j] * scale[j];
}

extern "C" __global__ void affine(const float* x, const float* scale, const float* shift, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * scale[i % c] + shift[i % c];
}
'''


def prepare(self):
    c = self.bn.weight.shape[0]
    scale = torch.empty((c,), dtype=torch.float32)
    shift = torch.empty((c,), dtype=torch.float32)
    fold[cdiv(c, 64), 64](
        self.bn.weight, self.bn.bias, self.bn.running_mean, self.bn.running_var, scale, shift, c, self.bn.eps
    )
    return {"scale": scale, "shift": shift}


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[cdiv(x.numel(), 128), 128](x, self.prepared.scale, self.prepared.shift, y, x.numel(), x.shape[1])
    return y
