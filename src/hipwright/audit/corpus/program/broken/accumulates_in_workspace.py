# wrong: partial sums are added to a workspace that nothing clears; it is zero the first time on most machines
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void add_up(const float* x, float* sums, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float before = sums[r];
    float acc = before == before && fabsf(before) < 1e30f ? before : 0.0f;
    for (int j = 0; j < cols; ++j) acc += x[(long)r * cols + j];
    sums[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    sums = torch.empty((x.shape[0],), dtype=x.dtype)
    add_up[cdiv(x.shape[0], 64), 64](x, sums, x.shape[0], x.shape[1])
    return sums
