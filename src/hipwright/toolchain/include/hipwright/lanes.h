// Reductions over neighbouring lanes of a wave.
#pragma once
#include <hip/hip_runtime.h>

// Returns the value of the lane whose number differs in the bits of `distance`.
template <typename T>
__device__ T shuffle_xor(T v, int distance) {
    return __shfl_xor(v, distance);
}

// Reduces over LANE_COUNT neighbouring lanes (a power of two, at most 32). Every lane returns the result.
template <int LANE_COUNT, typename T, typename Op>
__device__ T lane_reduce(T v, Op op) {
    for (int distance = LANE_COUNT / 2; distance > 0; distance >>= 1) v = op(v, shuffle_xor(v, distance));
    return v;
}

// Sums each of ROWS values over SPLIT neighbouring lanes and distributes the sums (a reduce-scatter): a lane ends with
// max(1, ROWS / SPLIT) of them in v, those of the rows from lane_reduce_scatter_row<ROWS, SPLIT>(lane) on.
template <int ROWS, int SPLIT>
__device__ void lane_reduce_scatter(float* v, int lane) {
    if constexpr (SPLIT > 1 && ROWS > 1) {
        const bool upper = lane & (SPLIT / 2);
#pragma unroll
        for (int r = 0; r < ROWS / 2; ++r) {
            const float sent = upper ? v[r] : v[r + ROWS / 2];
            v[r] = (upper ? v[r + ROWS / 2] : v[r]) + __shfl_xor(sent, SPLIT / 2);
        }
        lane_reduce_scatter<ROWS / 2, SPLIT / 2>(v, lane);
    } else if constexpr (SPLIT > 1) {
        v[0] += __shfl_xor(v[0], SPLIT / 2);
        lane_reduce_scatter<1, SPLIT / 2>(v, lane);
    }
}

template <int ROWS, int SPLIT>
__device__ int lane_reduce_scatter_row(int lane) {
    int row = 0;
    for (int distance = SPLIT / 2, rows = ROWS / 2; distance > 0 && rows > 0; distance /= 2, rows /= 2)
        row += lane & distance ? rows : 0;
    return row;
}

// Adds up each value of `COUNT` neighbouring groups of STEP lanes, all in a wavefront; every lane has the sums.
template <int STEP, int COUNT, int N>
__device__ __forceinline__ void add_lanes(float (&values)[N]) {
#pragma unroll
    for (int distance = STEP; distance < COUNT * STEP; distance *= 2) {
#pragma unroll
        for (int i = 0; i < N; ++i) values[i] += __shfl_xor(values[i], distance);
    }
}
