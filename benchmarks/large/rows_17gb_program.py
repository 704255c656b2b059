HIP = r"""
#include <hip/hip_runtime.h>
// One block per row: the row's largest value, the sum of exponentials, the result. Rows are long: offsets are 64-bit.
extern "C" __global__ void softmax_rows(const float* x, float* y, long rows, int cols) {
    __shared__ float part[1024 / 32];
    const float* in = x + blockIdx.x * (long)cols;
    float* out = y + blockIdx.x * (long)cols;
    const int lane = threadIdx.x % warpSize, wave = threadIdx.x / warpSize, waves = blockDim.x / warpSize;
    float top = -INFINITY;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) top = fmaxf(top, in[j]);
    for (int d = warpSize / 2; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor(top, d));
    if (lane == 0) part[wave] = top;
    __syncthreads();
    for (int w = 0; w < waves; ++w) top = fmaxf(top, part[w]);
    __syncthreads();
    float sum = 0.0f;
    for (int j = threadIdx.x; j < cols; j += blockDim.x) sum += expf(in[j] - top);
    for (int d = warpSize / 2; d > 0; d >>= 1) sum += __shfl_xor(sum, d);
    if (lane == 0) part[wave] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < waves; ++w) sum += part[w];
    for (int j = threadIdx.x; j < cols; j += blockDim.x) out[j] = expf(in[j] - top) / sum;
}
"""
BLOCK = knob(512, choices=[256, 512, 1024])


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_rows[x.shape[0], BLOCK](x, y, x.shape[0], x.shape[1])
    return y
