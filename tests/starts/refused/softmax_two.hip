// refused: cannot be converted: several functions could be the task's: small (line 8), large (line 9)
#include <hip/hip_runtime.h>

__global__ void softmax_kernel(const float* x, float* y, int cols) {
    if (threadIdx.x == 0) y[blockIdx.x] = x[blockIdx.x * cols];
}

void small(const float* x, float* y, int rows, int cols) { softmax_kernel<<<rows, 64>>>(x, y, cols); }
void large(const float* x, float* y, int rows, int cols) { softmax_kernel<<<rows, 256>>>(x, y, cols); }
