# a knob decides between two orders of the same sum
HIP = r'''
#include <hip/hip_runtime.h>
#if BACKWARDS
#define PLACE(j) (cols - 1 - (j))
#else
#define PLACE(j) (j)
#endif
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; ++j) acc += x[(long)r * cols + PLACE(j)];
    y[r] = acc;
}
'''

BACKWARDS = knob(0, choices=[0, 1])


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
