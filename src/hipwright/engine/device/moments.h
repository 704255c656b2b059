#pragma once
#include <hip/hip_runtime.h>
#include "arithmetic.h"

//@ with fast_fraction MergeMoments add_tile_moments
// How many, their mean as one of them and an offset (so that a large mean costs no digits), and the sum of
// their squared distances from it.
template <typename T>
struct Moments {
    T count, pivot, offset, squares;
    __device__ T mean() const { return pivot + offset; }
    __device__ T rest() const { return pivot - mean() + offset; }  // what the rounded mean leaves over
};

__device__ float fast_fraction(float part, float all) {
    return __fdividef(part, all);  // a bit short of exact, as the sums are
}
__device__ double fast_fraction(double part, double all) {
    return part / all;
}

// The moments of two sets together (Chan, Golub & LeVeque 1983).
struct MergeMoments {
    template <typename T>
    __device__ Moments<T> operator()(Moments<T> a, Moments<T> b) const {
        if (b.count == T(0)) return a;
        if (a.count == T(0)) return b;
        const T count = a.count + b.count, share = fast_fraction(b.count, count);
        const T distance = b.pivot - a.pivot + (b.offset - a.offset), offset = a.offset + distance * share;
        const T mean = a.pivot + offset;  // the next pivot: a far one would cost the sum its digits
        return {count, mean, a.pivot - mean + offset, a.squares + b.squares + distance * distance * a.count * share};
    }
};

//@ key add_tile_moments
// The moments with a tile's first `count` values: their mean, then the distances from it (corrected two-pass
// algorithm, Chan, Golub & LeVeque 1983). One of the values would do in its place, but for a far one's rounding.
template <typename T, int SIZE>
__device__ Moments<T> add_tile(Moments<T> state, const T (&v)[SIZE], int count) {
    if (count == 0) return state;
    T sum = T(0), rest = T(0), squares = T(0);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += k < count ? v[k] : T(0);
    const T pivot = fast_fraction(sum, T(count));
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        const T distance = k < count ? v[k] - pivot : T(0);
        rest += distance;
        squares += distance * distance;
    }
    const T offset = fast_fraction(rest, T(count));
    return MergeMoments()(state, Moments<T>{T(count), pivot, offset, squares - rest * offset});
}

// The moments of `lanes` neighbouring lanes together: a sum for the mean, then those of the
// distances from it, as in a tile.
template <typename T>
__device__ Moments<T> reduce_moments(Moments<T> v, int lanes) {
    T count = v.count, sum = v.count == T(0) ? T(0) : v.count * v.mean();
    for (int step = lanes / 2; step > 0; step >>= 1) {
        count += __shfl_xor(count, step);
        sum += __shfl_xor(sum, step);
    }
    const T pivot = count == T(0) ? T(0) : fast_fraction(sum, count), distance = v.pivot - pivot + v.offset;
    T rest = v.count == T(0) ? T(0) : v.count * distance, squares = v.count == T(0) ? T(0) : v.squares + distance * rest;
    for (int step = lanes / 2; step > 0; step >>= 1) {
        rest += __shfl_xor(rest, step);
        squares += __shfl_xor(squares, step);
    }
    const T offset = count == T(0) ? T(0) : fast_fraction(rest, count);
    return {count, pivot, offset, squares - rest * offset};
}

//@ key lane_reduce_moments
template <int LANE_COUNT, typename T>
__device__ Moments<T> lane_reduce(Moments<T> v, MergeMoments) {
    return reduce_moments(v, LANE_COUNT);
}

//@ key block_reduce_moments
//@ with lane_reduce_moments
template <int BLOCK_SIZE, typename T>
__device__ Moments<T> block_reduce(Moments<T> v, MergeMoments) {
    v = reduce_moments(v, warpSize);
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ Moments<T> partial[BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
    return reduce_moments(partial[threadIdx.x % waves], waves);
}
