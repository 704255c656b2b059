// A warp finds the place of a row's largest element; equal ones: the first.
#include <cuda_runtime.h>
#include <cfloat>
#include <cstdint>

__global__ void argmax_kernel(const float* __restrict__ x, int64_t* __restrict__ place, int cols) {
    const float* row = x + (size_t)blockIdx.x * cols;
    float best = -INFINITY;
    int at = cols;
    for (int c = threadIdx.x; c < cols; c += warpSize) {
        if (row[c] > best || at == cols) { best = row[c]; at = c; }
    }
    for (int offset = warpSize / 2; offset > 0; offset >>= 1) {
        float other = __shfl_xor_sync(0xFFFFFFFFu, best, offset);
        int there = __shfl_xor_sync(0xFFFFFFFFu, at, offset);
        if (other > best || (other == best && there < at)) { best = other; at = there; }
    }
    if (threadIdx.x == 0) place[blockIdx.x] = at;
}

// hipwright: x = x.contiguous()
// hipwright: place = torch.empty(x.shape[:-1], dtype=torch.int64)
// hipwright: argmax_kernel[place.numel(), 32](x, place, x.shape[-1])
// hipwright: return place
