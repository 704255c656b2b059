# a row per block, by the device headers
HIP = r'''
#include <hip/hip_runtime.h>
#include <hipwright/block_reduce.h>
#include <hipwright/operators.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    float acc = 0.0f;
    for (int j = threadIdx.x; j < cols; j += 128) acc += x[(long)blockIdx.x * cols + j];
    acc = block_reduce<128>(acc, Sum());
    if (threadIdx.x == 0) y[blockIdx.x] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 128](x, y, x.shape[1])
    return y
