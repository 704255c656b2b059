#pragma once
#include <hip/hip_runtime.h>
#include "block_reduce.h"

// Inclusive scan of the packs of a wave, lane after lane, pack after pack; returns the wave's total.
template <int ITEMS, int N, typename T, typename Op>
__device__ T scan_tile(T* v, T total, Op op) {
    const int lane = threadIdx.x % warpSize;
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
#pragma unroll
        for (int j = 1; j < N; ++j) v[k * N + j] = op(v[k * N + j - 1], v[k * N + j]);
        T sum = v[k * N + N - 1];
        for (int distance = 1; distance < warpSize; distance <<= 1) {
            const T lower = __shfl_up(sum, distance);
            if (lane >= distance) sum = op(lower, sum);
        }
        const T lower = __shfl_up(sum, 1);
        const T before = lane > 0 ? op(total, lower) : total;
#pragma unroll
        for (int j = 0; j < N; ++j) v[k * N + j] = op(before, v[k * N + j]);
        total = op(total, __shfl(sum, warpSize - 1));
    }
    return total;
}

// Adds the totals of the block's earlier waves to `before`, of all waves to `all`; `flip` alternates.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ void combine_wave_totals(T total, int flip, Op op, T& before, T& all) {
    __shared__ T partial[2][BLOCK_SIZE / 32];
    const int wave = threadIdx.x / warpSize;
    if (threadIdx.x % warpSize == warpSize - 1) partial[flip][wave] = total;
    __syncthreads();
    for (int w = 0; w < BLOCK_SIZE / warpSize; ++w) {
        if (w < wave) before = op(before, partial[flip][w]);
        all = op(all, partial[flip][w]);
    }
}

// What the tiles before this one come to. Tiles form groups of BLOCK_SIZE: sums[0 .. tiles) are theirs,
// the second half holds what comes before each group. Blocks wait for earlier tickets only, and add in one order.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T await_tile_prefix(T total, T* sums, int* flags, int tiles, int tile, T none, Op op) {
    __shared__ T carried;
    const int group = tile / BLOCK_SIZE, place = tile % BLOCK_SIZE, first = tile - place;
    if (threadIdx.x == 0) {
        sums[tile] = total;
        __threadfence();
        atomicExch(flags + tile, 1);
    }
    T before = none;
    if (threadIdx.x < place) {
        while (atomicAdd(flags + first + threadIdx.x, 0) == 0) {
        }
        __threadfence();
        before = sums[first + threadIdx.x];
    }
    before = block_reduce<BLOCK_SIZE>(before, op);
    if (threadIdx.x == 0) {
        carried = none;
        if (group > 0) {
            while (atomicAdd(flags + tiles + group, 0) == 0) {
            }
            __threadfence();
            carried = sums[tiles + group];
        }
        if (place == BLOCK_SIZE - 1 && tile + 1 < tiles) {
            sums[tiles + group + 1] = op(op(carried, before), total);
            __threadfence();
            atomicExch(flags + tiles + group + 1, 1);
        }
    }
    __syncthreads();
    return op(carried, before);
}

// Down each of N columns: what the rows of threads before this one and the tiles above come to.
// sums[0 .. tiles) are of tiles, the second half is what comes before each group of BLOCK_SIZE / WIDTH tiles.
template <int BLOCK_SIZE, int WIDTH, int N, typename T, typename Op>
__device__ void await_column_prefixes(const T (&total)[N], T (&before)[N], T* sums, int* flags, int tiles, int tile, T none,
                               Op op) {
    constexpr int LANES = BLOCK_SIZE / WIDTH;
    __shared__ T partial[N][BLOCK_SIZE];
    const int lane = threadIdx.x / WIDTH, place = threadIdx.x % WIDTH;
    const int group = tile / LANES, number = tile % LANES;
    T all[N], above[N];
#pragma unroll
    for (int j = 0; j < N; ++j) partial[j][threadIdx.x] = total[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) {
        before[j] = all[j] = none;
        for (int l = 0; l < LANES; ++l) {
            if (l == lane) before[j] = all[j];
            all[j] = op(all[j], partial[j][l * WIDTH + place]);
        }
        if (lane == 0) sums[(tile * WIDTH + place) * N + j] = all[j];
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(flags + tile, 1);
    const bool carries = lane == LANES - 1 && group > 0;  // the last row of threads has no tile to wait for
    const int from = carries ? tiles + group : tile - number + lane;
    if (place == 0 && (carries || lane < number)) {
        while (atomicAdd(flags + from, 0) == 0) {
        }
    }
    __syncthreads();
    __threadfence();
#pragma unroll
    for (int j = 0; j < N; ++j)
        partial[j][threadIdx.x] = carries || lane < number ? sums[(from * WIDTH + place) * N + j] : none;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) {
        above[j] = partial[j][(LANES - 1) * WIDTH + place];
        for (int l = 0; l < LANES - 1; ++l) above[j] = op(above[j], partial[j][l * WIDTH + place]);
        before[j] = op(above[j], before[j]);
    }
    if (number == LANES - 1 && tile + 1 < tiles) {
#pragma unroll
        for (int j = 0; j < N; ++j)
            if (lane == 0) sums[((tiles + group + 1) * WIDTH + place) * N + j] = op(above[j], all[j]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flags + tiles + group + 1, 1);
    }
}
