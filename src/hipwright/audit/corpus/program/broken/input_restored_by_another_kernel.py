# wrong: the input is negated by one launch, and negated back by a later one
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void negate(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = -x[i];
}
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc -= x[(long)blockIdx.x * cols + j];
    if (threadIdx.x == 0) y[blockIdx.x] = acc;
}
'''


def forward(self, x):
    assert x.is_contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    negate[cdiv(x.numel(), 64), 64](x, x.numel())
    row_sum[y.numel(), 1](x, y, x.shape[-1])
    negate[cdiv(x.numel(), 64), 64](x, x.numel())
    return y
