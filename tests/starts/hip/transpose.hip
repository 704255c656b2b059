// A transpose of 32 x 32 tiles with a padded LDS row.
#include <torch/extension.h>
#include <hip/hip_runtime.h>

#define HIP_CHECK(x) do { hipError_t e = (x); TORCH_CHECK(e == hipSuccess, "HIP failed"); } while (0)

__global__ void transpose_kernel(const float* in, float* out, int rows, int cols) {
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = in[(long)r * cols + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x;
    r = blockIdx.x * 32 + threadIdx.y;
    if (r < cols && c < rows) out[(long)r * rows + c] = tile[threadIdx.x][threadIdx.y];
}

torch::Tensor transpose(torch::Tensor x) {
    auto y = torch::empty({x.size(1), x.size(0)}, x.options());
    dim3 grid((x.size(1) + 31) / 32, (x.size(0) + 31) / 32), block(32, 32);
    transpose_kernel<<<grid, block>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    HIP_CHECK(hipGetLastError());
    return y;
}
