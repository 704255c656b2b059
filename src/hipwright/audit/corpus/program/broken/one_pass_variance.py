# wrong: E[x^2] - E[x]^2 in float32 loses the variance when the mean is large
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void layer_norm(const float* x, const float* g, const float* b, float* y, int rows, int c, float eps) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f, squares = 0.0f;
    for (int j = 0; j < c; ++j) { float v = x[r * c + j]; sum += v; squares += v * v; }
    float mean = sum / c;
    float scale = rsqrtf(squares / c - mean * mean + eps);
    for (int j = 0; j < c; ++j) y[r * c + j] = (x[r * c + j] - mean) * scale * g[j] + b[j];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    c = x.shape[-1]
    layer_norm[cdiv(x.numel() // c, 64), 64](x, self.norm.weight, self.norm.bias, y, x.numel() // c, c, self.norm.eps)
    return y
