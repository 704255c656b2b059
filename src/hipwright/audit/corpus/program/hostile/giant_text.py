# E8: a string repeated until memory ends
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc += x[r * cols + j];
    y[r] = acc;
}
'''


def forward(self, x):
    n = len("a" * 1000000000000)
    return x.sum(dim=-1) + n
