#pragma once
#include <hip/hip_runtime.h>
#include "arithmetic.h"

//@ with finite_shift MergeSoftmax exp_term softmax_of_tile add_tile_softmax shuffle_xor_softmax
// The maximum and the sum of exp(x - maximum), in one pass (Milakov & Gimelshein 2018); an infinite
// maximum shifts nothing.
template <typename T>
struct SoftmaxState {
    T top, sum;
    __device__ T total() const { return sum + (top - top); }  // NaN where the maximum is not finite, as exp(x - top) is
};

template <typename T>
__device__ T finite_shift(T top) {
    return top - top == T(0) ? top : T(0);
}

struct MergeSoftmax {
    template <typename T>
    __device__ SoftmaxState<T> operator()(SoftmaxState<T> a, SoftmaxState<T> b) const {
        const T top = nan_max(a.top, b.top), shift = finite_shift(top);
        const T left = a.sum == T(0) ? T(0) : a.sum * exp(finite_shift(a.top) - shift);
        const T right = b.sum == T(0) ? T(0) : b.sum * exp(finite_shift(b.top) - shift);
        return {top, left + right};
    }
};

// exp(x) as a term of a sum whose largest is 1: off by |x| units of the term, which is exp(-|x|) of the sum.
__device__ float exp_term(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
#else
    return __expf(x);
#endif
}
__device__ double exp_term(double x) {
    return exp(x);
}

// With the first `count` values of a tile, all of them in `ALL`. A NaN is in the sum, whatever the maximum makes of it.
template <bool ALL, typename T, int SIZE>
__device__ SoftmaxState<T> softmax_of_tile(SoftmaxState<T> state, const T (&v)[SIZE], int count) {
    T top = state.top, sum = T(0), seen[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        seen[k] = ALL || k < count ? v[k] : -T(INFINITY);
        top = fmax(top, seen[k]);
    }
    const T shift = finite_shift(top);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += exp_term(seen[k] - shift);
    sum += state.sum == T(0) ? T(0) : state.sum * exp(finite_shift(state.top) - shift);
    return {sum == sum ? top : sum, sum};
}

//@ key add_tile_softmax
template <typename T, int SIZE>
__device__ SoftmaxState<T> add_tile(SoftmaxState<T> state, const T (&v)[SIZE], int count) {
    return count == SIZE ? softmax_of_tile<true>(state, v, count) : softmax_of_tile<false>(state, v, count);
}

//@ key shuffle_xor_softmax
template <typename T>
__device__ SoftmaxState<T> shuffle_xor(SoftmaxState<T> v, int distance) {
    return {__shfl_xor(v.top, distance), __shfl_xor(v.sum, distance)};
}

// The same of `lanes` neighbouring lanes: their maximum first, so that each rescales once, where step by step
// each would as often as there are steps.
template <typename T>
__device__ SoftmaxState<T> reduce_softmax(SoftmaxState<T> v, int lanes) {
    T top = v.top;
    for (int distance = lanes / 2; distance > 0; distance >>= 1) top = nan_max(top, __shfl_xor(top, distance));
    T sum = v.sum == T(0) ? T(0) : v.sum * exp(finite_shift(v.top) - finite_shift(top));
    for (int distance = lanes / 2; distance > 0; distance >>= 1) sum += __shfl_xor(sum, distance);
    return {top, sum};
}

//@ key block_reduce_softmax
template <int BLOCK_SIZE, typename T>
__device__ SoftmaxState<T> block_reduce(SoftmaxState<T> v, MergeSoftmax) {
    v = reduce_softmax(v, warpSize);
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ SoftmaxState<T> partial[BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
    return reduce_softmax(partial[threadIdx.x % waves], waves);
}
