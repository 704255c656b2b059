// Written for waves of 32: every 32 threads are a row, and take its sum from lane 0. A wave of 64 holds two rows.
#include <hip/hip_runtime.h>

__global__ void l2_kernel(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float s = 0.f;
    if (row < rows)
        for (int c = lane; c < cols; c += 32) s += x[(size_t)row * cols + c] * x[(size_t)row * cols + c];
    for (int d = 16; d > 0; d >>= 1) s += __shfl_down(s, d);
    s = __shfl(s, 0);
    if (row < rows)
        for (int c = lane; c < cols; c += 32) y[(size_t)row * cols + c] = x[(size_t)row * cols + c] / sqrtf(s + 1e-6f);
}

void l2_rows(const float* x, float* y, int rows, int cols) { l2_kernel<<<(rows + 3) / 4, 128>>>(x, y, rows, cols); }
