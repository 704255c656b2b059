"""One block per row, a tree in LDS with a barrier in every round; reads strided inputs as they are."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, long row_stride, long col_stride, int cols) {
    __shared__ float part[256];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 256) acc += x[blockIdx.x * row_stride + j * col_stride];
    part[t] = acc;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}
'''


def forward(self, x):
    assert x.dim() == 2, "two dimensions"
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 256](x, y, x.stride(0), x.stride(1), x.shape[1])
    return y
