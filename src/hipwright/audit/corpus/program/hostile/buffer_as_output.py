# A11: the second result is the module's own buffer
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void average(const float* x, float* avg, int n, int c) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i * c + j];
    avg[j] = avg[j] * 0.9f + sum / n * 0.1f;
}
'''


def forward(self, x):
    x = x.contiguous()
    average[cdiv(x.shape[1], 64), 64](x, self.average, x.shape[0], x.shape[1])
    return self.average.expand(x.shape[0], x.shape[1])
