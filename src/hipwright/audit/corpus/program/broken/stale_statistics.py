# wrong: the output is right, but the running statistics stay as they were
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void batch_norm(const float* x, const float* g, const float* b, float* y, int n, int c, float eps) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    float mean = 0.0f, m2 = 0.0f;
    for (int i = 0; i < n; ++i) {
        float v = x[i * c + j], d = v - mean;
        mean += d / (i + 1);
        m2 += d * (v - mean);
    }
    float scale = g[j] / sqrtf(m2 / n + eps);
    for (int i = 0; i < n; ++i) y[i * c + j] = (x[i * c + j] - mean) * scale + b[j];
}
'''


def forward(self, x):
    x = x.contiguous()
    n, c = x.shape
    y = torch.empty_like(x)
    batch_norm[cdiv(c, 64), 64](x, self.bn.weight, self.bn.bias, y, n, c, self.bn.eps)
    return y
