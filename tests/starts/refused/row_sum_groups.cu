// refused: line 4: cannot be converted: the device code uses cooperative groups
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void row_sum_kernel(const float* x, float* out, int cols) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += 32) s += x[(size_t)blockIdx.x * cols + c];
    for (int offset = 16; offset > 0; offset >>= 1) s += warp.shfl_down(s, offset);
    if (threadIdx.x == 0) out[blockIdx.x] = s;
}

void row_sum(const float* x, float* out, int rows, int cols) { row_sum_kernel<<<rows, 32>>>(x, out, cols); }
