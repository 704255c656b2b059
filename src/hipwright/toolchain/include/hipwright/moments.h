// Mean and variance: states, their merging (Chan et al. 1983) and reductions.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/arithmetic.h>

// Moments of a set of values: their number, the mean as pivot + offset, so that a large mean costs no digits, and the
// sum of squared deviations from the mean.
template <typename T>
struct alignas(16) Moments {
    T count, pivot, offset, squares;
    __device__ T mean() const { return pivot + offset; }
    __device__ T rest() const { return pivot - mean() + offset; }  // the part of the mean that rounding to T loses
};

// Returns part / all with an error of at most 2 ulp.
__device__ inline float fast_fraction(float part, float all) {
    return __fdividef(part, all);
}
__device__ inline double fast_fraction(double part, double all) {
    return part / all;
}

// Combines the moments of two sets (Chan, Golub & LeVeque 1983).
struct MergeMoments {
    template <typename T>
    __device__ Moments<T> operator()(Moments<T> a, Moments<T> b) const {
        if (b.count == T(0)) return a;
        if (a.count == T(0)) return b;
        const T count = a.count + b.count, fraction = fast_fraction(b.count, count);
        const T distance = b.pivot - a.pivot + (b.offset - a.offset), offset = a.offset + distance * fraction;
        const T mean = a.pivot + offset;  // the new pivot; a distant one would cost the sum digits
        return {count, mean, a.pivot - mean + offset,
                a.squares + b.squares + distance * distance * a.count * fraction};
    }
};

// Adds the first `count` values of a tile: their mean, then the deviations from it (corrected two-pass algorithm,
// Chan, Golub & LeVeque 1983).
template <typename T, int SIZE>
__device__ Moments<T> add_tile(Moments<T> state, const T (&v)[SIZE], int count) {
    if (count == 0) return state;
    T sum = T(0), residual = T(0), squares = T(0);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += k < count ? v[k] : T(0);
    const T pivot = fast_fraction(sum, T(count));
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        const T distance = k < count ? v[k] - pivot : T(0);
        residual += distance;
        squares += distance * distance;
    }
    const T offset = fast_fraction(residual, T(count));
    return MergeMoments()(state, Moments<T>{T(count), pivot, offset, squares - residual * offset});
}

// As add_tile, for values that are products, which are rounded first.
template <typename T, int SIZE>
__device__ Moments<T> add_products_to_moments(Moments<T> state, const T (&v)[SIZE], int count) {
    if (count == 0) return state;
    T sum = T(0), residual = T(0), squares = T(0);
#pragma unroll
    for (int k = 0; k < SIZE; ++k) sum += k < count ? v[k] : T(0);
    const T pivot = fast_fraction(sum, T(count));
#pragma unroll
    for (int k = 0; k < SIZE; ++k) {
        const T distance = k < count ? sub_rn(v[k], pivot) : T(0);
        residual += distance;
        squares += distance * distance;
    }
    const T offset = fast_fraction(residual, T(count));
    return MergeMoments()(state, Moments<T>{T(count), pivot, offset, squares - residual * offset});
}

// Combines the moments of `lanes` neighbouring lanes: a sum for the mean, then sums of the deviations from it, as
// add_tile does.
template <typename T>
__device__ Moments<T> reduce_moments(Moments<T> v, int lanes) {
    T count = v.count, sum = v.count == T(0) ? T(0) : v.count * v.mean();
    for (int step = lanes / 2; step > 0; step >>= 1) {
        count += __shfl_xor(count, step);
        sum += __shfl_xor(sum, step);
    }
    const T pivot = count == T(0) ? T(0) : fast_fraction(sum, count), distance = v.pivot - pivot + v.offset;
    T residual = v.count == T(0) ? T(0) : v.count * distance,
      squares = v.count == T(0) ? T(0) : v.squares + distance * residual;
    for (int step = lanes / 2; step > 0; step >>= 1) {
        residual += __shfl_xor(residual, step);
        squares += __shfl_xor(squares, step);
    }
    const T offset = count == T(0) ? T(0) : fast_fraction(residual, count);
    return {count, pivot, offset, squares - residual * offset};
}

// Combines the moments at `first`, `stride` apart, of `sets` sets, as reduce_moments does.
template <typename T>
__device__ Moments<T> combine_strided(const Moments<T>* first, int stride, int sets, MergeMoments) {
    T count = T(0), sum = T(0), residual = T(0), squares = T(0);
    for (int k = 0; k < sets; ++k) {
        const Moments<T> part = first[k * stride];
        count += part.count;
        sum += part.count * part.mean();
    }
    const T pivot = count == T(0) ? T(0) : fast_fraction(sum, count);
    for (int k = 0; k < sets; ++k) {
        const Moments<T> part = first[k * stride];
        const T distance = part.pivot - pivot + part.offset, weighted = part.count * distance;
        residual += weighted;
        squares += part.squares + distance * weighted;
    }
    const T offset = count == T(0) ? T(0) : fast_fraction(residual, count);
    return {count, pivot, offset, squares - residual * offset};
}

template <int LANE_COUNT, typename T>
__device__ Moments<T> lane_reduce(Moments<T> v, MergeMoments) {
    return reduce_moments(v, LANE_COUNT);
}

template <int BLOCK_SIZE, typename T>
__device__ Moments<T> block_reduce(Moments<T> v, MergeMoments) {
    v = reduce_moments(v, warpSize);
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ Moments<T> partial[BLOCK_SIZE / 32];
    __syncthreads();  // `partial` may still be read from the previous call
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
    return reduce_moments(partial[threadIdx.x % waves], waves);
}
