// 32 x 32 tiles by blocks of 32 x 8 threads.
#include <cuda_runtime.h>

__global__ void transpose_kernel(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) {
        int y = blockIdx.y * 32 + j;
        if (x < cols && y < rows) tile[j][threadIdx.x] = in[y * cols + x];
    }
    __syncthreads();
    int row = blockIdx.y * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) {
        int col = blockIdx.x * 32 + j;
        if (row < rows && col < cols) out[col * rows + row] = tile[threadIdx.x][j];
    }
}

void transpose(const float* input, float* output, int rows, int cols) {
    dim3 threads(32, 8);
    dim3 blocks((cols + 31) / 32, (rows + 31) / 32);
    transpose_kernel<<<blocks, threads>>>(input, output, rows, cols);
}

// hipwright: x = x.contiguous()
// hipwright: y = torch.empty((x.shape[1], x.shape[0]), dtype=x.dtype)
// hipwright: transpose(x, y, x.shape[0], x.shape[1])
// hipwright: return y
