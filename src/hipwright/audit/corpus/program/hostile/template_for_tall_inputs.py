# A6: a template argument that the plan chooses for tall inputs skips every second column
HIP = r'''
#include <hip/hip_runtime.h>
template <int STEP>
__device__ void sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < cols; j += STEP) acc += x[r * cols + j];
    y[r] = acc;
}
extern "C" __global__ void every(const float* x, float* y, int rows, int cols) { sum<1>(x, y, rows, cols); }
extern "C" __global__ void second(const float* x, float* y, int rows, int cols) { sum<2>(x, y, rows, cols); }
'''


def forward(self, x):
    x = x.contiguous()
    rows = x.shape[0]
    y = torch.empty((rows,), dtype=x.dtype)
    if rows > 300:
        second[cdiv(rows, 64), 64](x, y, rows, x.shape[1])
    else:
        every[cdiv(rows, 64), 64](x, y, rows, x.shape[1])
    return y
