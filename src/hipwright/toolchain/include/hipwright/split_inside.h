// Rows of floats that a block of a split product scales and splits itself, without memory for their parts.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/split_product.h>

// The 128 rows of a block: numbers(r, chunk, whole) are those of row r that the thread splits (SplitNumbers), zeros beyond
// k; whole: by vectors, which `aligned` allows. Called as `multiply` calls load_a it gives them scaled. row_scales: what the
// thread's sums are scaled back by.
template <int TM, typename Numbers>
struct RowsSplitInside {
    Numbers numbers;
    bool aligned;
    float (&row_scales)[TM];
    float scales[4];  // of the rows that the thread splits, 32 apart

    __device__ __forceinline__ SplitNumbers operator()(int l, int r, int chunk) const {
        return scaled(numbers(r, chunk, aligned), scales[l]);
    }

    __device__ static __forceinline__ SplitNumbers scaled(SplitNumbers x, float scale) {
#pragma unroll
        for (int v = 0; v < 4; ++v) x.v[v] *= scale;
        return x;
    }
};

template <int TM, typename Numbers>
__device__ __forceinline__ RowsSplitInside<TM, Numbers> rows_split_inside(Numbers numbers, bool aligned,
                                                                          float (&row_scales)[TM]) {
    return {numbers, aligned, row_scales, {}};
}

// Whether a loader of rows splits them.
template <typename Rows>
constexpr bool SPLITS_INSIDE = false;
template <int TM, typename Numbers>
constexpr bool SPLITS_INSIDE<RowsSplitInside<TM, Numbers>> = true;

__device__ __forceinline__ float largest_of(float largest, const SplitNumbers& x) {
#pragma unroll
    for (int v = 0; v < 4; ++v) largest = fmaxf(largest, fabsf(x.v[v]));
    return largest;
}

// The scale of row r, of which eight lanes have the largest magnitudes; `back` gets what undoes it.
__device__ __forceinline__ float scale_of_row(float* back, int r, float largest) {
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) largest = fmaxf(largest, __shfl_xor(largest, distance));
    const int exponent = split_exponent(largest);
    if (threadIdx.x % 8 == 0) back[r] = power_of_two(-exponent);
    return power_of_two(exponent);
}

// Splits the block's rows to `slots` in LDS, at most KEPT chunks of k of 128 rows each; every number is read once.
template <int KEPT, int TM, typename Numbers>
__device__ __forceinline__ void split_kept(const RowsSplitInside<TM, Numbers>& rows, bool whole, __half* slots, float* back,
                                           int chunks) {
    constexpr int AT_ONCE = KEPT > 4 ? 2 : 4;  // rows whose loads are under way: the sums' registers are free yet
#pragma unroll 1
    for (int row = threadIdx.x / 8; row < 128; row += AT_ONCE * 32) {
        SplitNumbers held[AT_ONCE][KEPT];
#pragma unroll
        for (int l = 0; l < AT_ONCE; ++l) {
#pragma unroll
            for (int c = 0; c < KEPT; ++c) held[l][c] = rows.numbers(row + l * 32, c < chunks ? c : chunks - 1, whole);
        }
#pragma unroll
        for (int l = 0; l < AT_ONCE; ++l) {
            float largest = 0.0f;
#pragma unroll
            for (int c = 0; c < KEPT; ++c) largest = largest_of(largest, held[l][c]);
            const float scale = scale_of_row(back, row + l * 32, largest);
#pragma unroll
            for (int c = 0; c < KEPT; ++c) {
                if (c < chunks) store_split(slots + c * (128 * 64), row + l * 32, rows.scaled(held[l][c], scale));
            }
        }
    }
}

// Finds the scales of rows that the block splits. KEPT > 0: the at most KEPT chunks of k are split to `slots` in LDS.
// back: 128 floats in LDS, which are free after the next barrier. Every thread calls it.
template <int KEPT, typename Tile, int TM, typename Numbers>
__device__ __forceinline__ void find_scales(RowsSplitInside<TM, Numbers>& rows, __half* slots, float* back, int chunks) {
    if constexpr (KEPT > 0) {
        if (rows.aligned)
            split_kept<KEPT>(rows, true, slots, back, chunks);
        else
            split_kept<KEPT>(rows, false, slots, back, chunks);
    } else {
        const int first = threadIdx.x / 8;
#pragma unroll
        for (int l = 0; l < 4; ++l) {
            float largest = 0.0f;
#pragma unroll 2
            for (int chunk = 0; chunk < chunks; ++chunk)
                largest = largest_of(largest, rows.numbers(first + l * 32, chunk, rows.aligned));
            rows.scales[l] = scale_of_row(back, first + l * 32, largest);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TM; ++i) rows.row_scales[i] = back[Tile::row(i)];
}
