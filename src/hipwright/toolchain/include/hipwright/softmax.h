// The state of an online softmax and its merging.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/constants.h>
#include <hipwright/arithmetic.h>

// The state of an online softmax: the maximum and the sum of exp(x - maximum) (Milakov & Gimelshein 2018). The sum is
// not shifted by an infinite maximum.
template <typename T>
struct SoftmaxState {
    T max, sum;
    // The sum, or NaN where the maximum is not finite, as exp(x - maximum) is.
    __device__ T total() const { return sum + (max - max); }
};

// Returns the maximum if it is finite, else 0.
template <typename T>
__device__ T finite_shift(T max) {
    return max - max == T(0) ? max : T(0);
}

// Combines two states: both sums are rescaled to the common maximum.
struct MergeSoftmax {
    template <typename T>
    __device__ SoftmaxState<T> operator()(SoftmaxState<T> a, SoftmaxState<T> b) const {
        const T max = nan_max(a.max, b.max), shift = finite_shift(max);
        const T left = a.sum == T(0) ? T(0) : a.sum * exp(finite_shift(a.max) - shift);
        const T right = b.sum == T(0) ? T(0) : b.sum * exp(finite_shift(b.max) - shift);
        return {max, left + right};
    }
};

// Returns exp(x) for x <= 0 as a term of a sum whose largest term is 1. The error is |x| ulp of the term, of which the
// sum keeps a share of exp(-|x|).
__device__ inline float exp_term(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
#else
    return __expf(x);
#endif
}
__device__ inline double exp_term(double x) {
    return exp(x);
}

// Adds the first `count` values of a tile, or all if ALL. A NaN among them makes the sum NaN, and then the maximum.
template <bool ALL, typename T, int SIZE>
__device__ SoftmaxState<T> softmax_of_tile(SoftmaxState<T> state, const T (&v)[SIZE], int count) {
    T max = state.max, sum = T(0), values[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        values[k] = ALL || k < count ? v[k] : -T(INFINITY);
        max = fmax(max, values[k]);
    }
    const T shift = finite_shift(max);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += exp_term(values[k] - shift);
    sum += state.sum == T(0) ? T(0) : state.sum * exp(finite_shift(state.max) - shift);
    return {sum == sum ? max : sum, sum};
}

// Adds the first `count` values of a tile, or all if ALL. A NaN among them makes the sum NaN, and then the maximum.
template <bool ALL, typename T, int SIZE>
__device__ SoftmaxState<T> softmax_of_products(SoftmaxState<T> state, const T (&v)[SIZE], int count) {
    T max = state.max, sum = T(0), values[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        values[k] = ALL || k < count ? v[k] : -T(INFINITY);
        max = fmax(max, values[k]);
    }
    const T shift = finite_shift(max);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += exp_term(sub_rn(values[k], shift));
    sum += state.sum == T(0) ? T(0) : state.sum * exp(finite_shift(state.max) - shift);
    return {sum == sum ? max : sum, sum};
}

// Adds the first `count` values of a tile.
template <typename T, int SIZE>
__device__ SoftmaxState<T> add_tile(SoftmaxState<T> state, const T (&v)[SIZE], int count) {
    return count == SIZE ? softmax_of_tile<true>(state, v, count) : softmax_of_tile<false>(state, v, count);
}

// Adds the first `count` values of a tile.
template <typename T, int SIZE>
__device__ SoftmaxState<T> add_products_to_softmax(SoftmaxState<T> state, const T (&v)[SIZE], int count) {
    return count == SIZE ? softmax_of_products<true>(state, v, count) : softmax_of_products<false>(state, v, count);
}

template <typename T>
__device__ SoftmaxState<T> shuffle_xor(SoftmaxState<T> v, int distance) {
    return {__shfl_xor(v.max, distance), __shfl_xor(v.sum, distance)};
}
