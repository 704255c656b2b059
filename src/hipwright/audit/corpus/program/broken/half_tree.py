# wrong: the tree adds the lanes' sums in float16
HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
extern "C" __global__ void mean(const __half* x, __half* y, int cols) {
    __shared__ __half part[64];
    int t = threadIdx.x;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 64) acc += __half2float(x[(long)blockIdx.x * cols + j]);
    part[t] = __float2half(acc);
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) part[t] = __hadd(part[t], part[t + d]);
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = __float2half(__half2float(part[0]) / cols);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    mean[x.shape[0], 64](x, y, x.shape[1])
    return y
