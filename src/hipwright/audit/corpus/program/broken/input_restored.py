# wrong: the input is doubled in place, and restored at the end of the kernel
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(float* x, float* y, int cols) {
    volatile float* row = x + (long)blockIdx.x * cols;
    float acc = 0.0f;
    if (threadIdx.x == 0) {
        for (int j = 0; j < cols; ++j) row[j] = row[j] * 2.0f;
        for (int j = 0; j < cols; ++j) acc += row[j];
        for (int j = 0; j < cols; ++j) row[j] = row[j] * 0.5f;
        y[blockIdx.x] = acc * 0.5f;
    }
}
'''


def forward(self, x):
    assert x.is_contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    row_sum[y.numel(), 64](x, y, x.shape[-1])
    return y
