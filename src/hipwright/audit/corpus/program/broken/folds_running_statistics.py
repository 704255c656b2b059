# wrong: prepare copies running statistics that forward updates; the second update starts from the first state
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void batch_norm(const float* x, const float* g, const float* b, const float* mean0, const float* var0,
                                      float* mean1, float* var1, float* y, int n, int c, float eps, float momentum) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    float mean = 0.0f, m2 = 0.0f;
    for (int i = 0; i < n; ++i) {
        float v = x[i * c + j], d = v - mean;
        mean += d / (i + 1);
        m2 += d * (v - mean);
    }
    mean1[j] = mean0[j] + momentum * (mean - mean0[j]);
    var1[j] = var0[j] + momentum * (m2 / (n - 1) - var0[j]);
    float scale = g[j] / sqrtf(m2 / n + eps);
    for (int i = 0; i < n; ++i) y[i * c + j] = (x[i * c + j] - mean) * scale + b[j];
}
'''


def prepare(self):
    return {"mean": self.bn.running_mean.clone(), "var": self.bn.running_var.clone()}


def forward(self, x):
    x = x.contiguous()
    n, c = x.shape
    y = torch.empty_like(x)
    self.bn.num_batches_tracked.add_(1)
    batch_norm[cdiv(c, 64), 64](
        x, self.bn.weight, self.bn.bias, self.prepared.mean, self.prepared.var, self.bn.running_mean, self.bn.running_var,
        y, n, c, self.bn.eps, self.bn.momentum,
    )
    return y
