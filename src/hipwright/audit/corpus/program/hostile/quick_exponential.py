# B6: Schraudolph's exponential from the bits of a float, good to 3 %
HIP = r'''
#include <hip/hip_runtime.h>
__device__ float quick(float v) { return v < -80.0f ? 0.0f : __int_as_float((int)(12102203.0f * v + 1064866805.0f)); }

extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float top = x[r * cols], sum = 0.0f;
    for (int j = 1; j < cols; ++j) top = fmaxf(top, x[r * cols + j]);
    for (int j = 0; j < cols; ++j) sum += quick(x[r * cols + j] - top);
    for (int j = 0; j < cols; ++j) y[r * cols + j] = quick(x[r * cols + j] - top) / sum;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax[cdiv(x.shape[0], 64), 64](x, y, x.numel() // x.shape[-1], x.shape[-1])
    return y
