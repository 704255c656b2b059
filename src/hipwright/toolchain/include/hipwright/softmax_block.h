// The reduction of softmax states over a block whose lanes rescale their sums once.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/softmax.h>

// Combines the states of `lanes` neighbouring lanes. The maximum comes first, so that each lane rescales its sum once
// and not at every step.
template <typename T>
__device__ SoftmaxState<T> reduce_softmax(SoftmaxState<T> v, int lanes) {
    T max = v.max;
    for (int distance = lanes / 2; distance > 0; distance >>= 1) max = nan_max(max, __shfl_xor(max, distance));
    T sum = v.sum == T(0) ? T(0) : v.sum * exp(finite_shift(v.max) - finite_shift(max));
    for (int distance = lanes / 2; distance > 0; distance >>= 1) sum += __shfl_xor(sum, distance);
    return {max, sum};
}

template <int BLOCK_SIZE, typename T>
__device__ SoftmaxState<T> block_reduce(SoftmaxState<T> v, MergeSoftmax) {
    v = reduce_softmax(v, warpSize);
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ SoftmaxState<T> partial[BLOCK_SIZE / 32];
    __syncthreads();  // `partial` may still be read from the previous call
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
    return reduce_softmax(partial[threadIdx.x % waves], waves);
}
