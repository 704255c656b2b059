"""A wave per row with a boolean mask; rows without any allowed score give -inf."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void masked(const float* x, const bool* mask, float* y, int rows, int cols) {
    int r = blockIdx.x;
    float top = -INFINITY;
    for (int j = threadIdx.x; j < cols; j += blockDim.x)
        if (mask[r * cols + j]) top = fmaxf(top, x[r * cols + j]);
    for (int d = warpSize / 2; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor(top, d));
    float sum = 0.0f;
    if (top > -INFINITY)
        for (int j = threadIdx.x; j < cols; j += blockDim.x)
            if (mask[r * cols + j]) sum += expf(x[r * cols + j] - top);
    for (int d = warpSize / 2; d > 0; d >>= 1) sum += __shfl_xor(sum, d);
    if (threadIdx.x == 0) y[r] = top > -INFINITY ? top + logf(sum) : -INFINITY;
}
'''
WAVE = knob(64, choices=[32, 64])


def forward(self, x, mask):
    x = x.contiguous()
    mask = mask.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    masked[x.shape[0], WAVE](x, mask, y, x.shape[0], x.shape[1])
    return y
