// Two inputs by their names in the task; the launch in pieces.
#include <hip/hip_runtime.h>

static __device__ inline float silu(float v) { return v / (1.0f + expf(-v)); }

__global__ void bias_silu_kernel(const float* x, const float* bias, float* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int r = blockIdx.y; r < rows; r += gridDim.y) y[(size_t)r * cols + c] = silu(x[(size_t)r * cols + c] + bias[c]);
}

extern "C" void bias_silu(const float* x, const float* bias, float* y, int rows, int cols) {
    dim3 grid;
    grid.x = (cols + 63) / 64;
    grid.y = rows < 8 ? rows : 8;
    bias_silu_kernel<<<grid, dim3(64)>>>(x, bias, y, rows, cols);
}
