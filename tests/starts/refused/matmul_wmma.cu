// refused: line 8: cannot be converted: the device code uses WMMA
#include <torch/extension.h>
#include <mma.h>

using namespace nvcuda;

__global__ void matmul_kernel(const half* a, const half* b, float* c, int k) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.f);
    wmma::store_matrix_sync(c, acc, 16, wmma::mem_row_major);
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
    auto c = torch::zeros({a.size(0), b.size(1)}, a.options());
    matmul_kernel<<<1, 32>>>((const half*)a.data_ptr<at::Half>(), (const half*)b.data_ptr<at::Half>(), c.data_ptr<float>(), a.size(1));
    return c;
}
