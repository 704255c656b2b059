# E8: macros that expand to a thousand million additions
HIP = r'''
#include <hip/hip_runtime.h>
#define L0 acc += 1.0f;
#define L1 L0 L0 L0 L0 L0 L0 L0 L0 L0 L0
#define L2 L1 L1 L1 L1 L1 L1 L1 L1 L1 L1
#define L3 L2 L2 L2 L2 L2 L2 L2 L2 L2 L2
#define L4 L3 L3 L3 L3 L3 L3 L3 L3 L3 L3
#define L5 L4 L4 L4 L4 L4 L4 L4 L4 L4 L4
#define L6 L5 L5 L5 L5 L5 L5 L5 L5 L5 L5
#define L7 L6 L6 L6 L6 L6 L6 L6 L6 L6 L6
#define L8 L7 L7 L7 L7 L7 L7 L7 L7 L7 L7
#define L9 L8 L8 L8 L8 L8 L8 L8 L8 L8 L8

extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc += x[r * cols + j];
    L9
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
