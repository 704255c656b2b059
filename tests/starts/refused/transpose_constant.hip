// refused: line 4: cannot be converted: the device code uses constant memory that the host fills
#include <hip/hip_runtime.h>

__constant__ int size[2];

__global__ void transpose_kernel(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size[0] * size[1]) y[(i % size[1]) * size[0] + i / size[1]] = x[i];
}

void transpose(const float* x, float* y, int rows, int cols) { transpose_kernel<<<(rows * cols + 63) / 64, 64>>>(x, y); }
