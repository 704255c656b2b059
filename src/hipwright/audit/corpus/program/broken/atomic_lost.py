# wrong: rows that meet are added without an atomic
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void add_rows(const float* x, const long* index, float* y, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[index[i / cols] * cols + i % cols] += x[i];
}
'''


def forward(self, x, index):
    x = x.contiguous()
    index = index.contiguous()
    y = torch.zeros((9, x.shape[1]), dtype=x.dtype)
    add_rows[cdiv(x.numel(), 128), 128](x, index, y, x.numel(), x.shape[1])
    return y
