// refused: line 9: cannot be converted: hipMemset() of something other than fresh memory with zeros
#include <hip/hip_runtime.h>

__global__ void row_max_kernel(const float* x, float* out, int cols) {
    if (threadIdx.x == 0) out[blockIdx.x] = x[blockIdx.x * cols];
}

void row_max(const float* x, float* out, int rows, int cols) {
    hipMemset(out, 255, rows * sizeof(float));
    row_max_kernel<<<rows, 64>>>(x, out, cols);
}
