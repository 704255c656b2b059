# conditionals on macros of its own, one of them a default
HIP = r'''
#include <hip/hip_runtime.h>
#define PAIRS 1
#ifndef STEP
#define STEP 1
#endif
#if defined(PAIRS) && STEP == 1
#define LOAD(j) x[(long)r * cols + (j)]
#else
#define LOAD(j) 0.0f
#endif
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc += LOAD(j);
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
