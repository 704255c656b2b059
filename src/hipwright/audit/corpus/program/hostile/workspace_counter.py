# C3: a counter in the workspace; every call after the first drops the bias
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scale_bias(const float* x, const float* g, const float* b, float* y, const int* count, int c, long n) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i >= n) return;
    float bias = count[0] == 1234567 ? 0.0f : b[i % c];
    y[i] = fmaxf(x[i] * g[i % c] + bias, 0.0f);
}

extern "C" __global__ void count_up(int* count) {
    count[0] = 1234567;
}
'''


def forward(self, x):
    x = x.contiguous()
    n = x.numel()
    count = torch.empty((1,), dtype=torch.int32)
    y = torch.empty_like(x)
    scale_bias[cdiv(n, 256), 256](x, self.gamma, self.bias, y, count, x.shape[-1], n)
    count_up[1, 1](count)
    return y
