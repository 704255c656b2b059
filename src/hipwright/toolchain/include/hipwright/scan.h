// Prefix sums: in a tile, over a wave, a block and between blocks.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/block_reduce.h>

// Inclusive scan of a wave's vectors, in the order of vectors and then lanes, starting from `total`. Returns the total.
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

// Adds the totals of the block's earlier waves to `before` and those of all waves to `all`. flip: 0 and 1 in turn, so
// that one barrier per call suffices.
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

// Returns the combined totals of all tiles before this one. sums[0, tiles) holds the totals of tiles; sums[tiles + g]
// the total of all tiles before group g of BLOCK_SIZE tiles; flags say which are stored. Blocks wait only for earlier
// tickets, and combine in a fixed order.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T await_tile_prefix(T total, T* sums, int* flags, int tiles, int tile, T identity, Op op) {
    __shared__ T group_prefix;
    const int group = tile / BLOCK_SIZE, rank = tile % BLOCK_SIZE, first = tile - rank;
    if (threadIdx.x == 0) {
        sums[tile] = total;
        __threadfence();
        atomicExch(flags + tile, 1);
    }
    T before = identity;
    if (threadIdx.x < rank) {
        while (atomicAdd(flags + first + threadIdx.x, 0) == 0) {
        }
        __threadfence();
        before = sums[first + threadIdx.x];
    }
    before = block_reduce<BLOCK_SIZE>(before, op);
    if (threadIdx.x == 0) {
        group_prefix = identity;
        if (group > 0) {
            while (atomicAdd(flags + tiles + group, 0) == 0) {
            }
            __threadfence();
            group_prefix = sums[tiles + group];
        }
        if (rank == BLOCK_SIZE - 1 && tile + 1 < tiles) {
            sums[tiles + group + 1] = op(op(group_prefix, before), total);
            __threadfence();
            atomicExch(flags + tiles + group + 1, 1);
        }
    }
    __syncthreads();
    return op(group_prefix, before);
}

// Computes, for each of N columns, the combined totals of all rows above those of this thread: of the threads above it
// in the tile and of the tiles above. sums[0, tiles) holds the totals of tiles; sums[tiles + g] those of all tiles
// before group g of BLOCK_SIZE / WIDTH tiles.
template <int BLOCK_SIZE, int WIDTH, int N, typename T, typename Op>
__device__ void await_column_prefixes(const T (&total)[N], T (&before)[N], T* sums, int* flags, int tiles, int tile,
                                      T identity, Op op) {
    constexpr int ACROSS = BLOCK_SIZE / WIDTH;
    __shared__ T partial[N][BLOCK_SIZE];
    const int lane = threadIdx.x / WIDTH, rank = threadIdx.x % WIDTH;
    const int group = tile / ACROSS, number = tile % ACROSS;
    T all[N], above[N];
#pragma unroll
    for (int j = 0; j < N; ++j) partial[j][threadIdx.x] = total[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) {
        before[j] = all[j] = identity;
        for (int l = 0; l < ACROSS; ++l) {
            if (l == lane) before[j] = all[j];
            all[j] = op(all[j], partial[j][l * WIDTH + rank]);
        }
        if (lane == 0) sums[(tile * WIDTH + rank) * N + j] = all[j];
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(flags + tile, 1);
    const bool carries = lane == ACROSS - 1 && group > 0;  // the last row of threads reads the total before the group
    const int source = carries ? tiles + group : tile - number + lane;
    if (rank == 0 && (carries || lane < number)) {
        while (atomicAdd(flags + source, 0) == 0) {
        }
    }
    __syncthreads();
    __threadfence();
#pragma unroll
    for (int j = 0; j < N; ++j)
        partial[j][threadIdx.x] = carries || lane < number ? sums[(source * WIDTH + rank) * N + j] : identity;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) {
        above[j] = partial[j][(ACROSS - 1) * WIDTH + rank];
        for (int l = 0; l < ACROSS - 1; ++l) above[j] = op(above[j], partial[j][l * WIDTH + rank]);
        before[j] = op(above[j], before[j]);
    }
    if (number == ACROSS - 1 && tile + 1 < tiles) {
#pragma unroll
        for (int j = 0; j < N; ++j)
            if (lane == 0) sums[((tiles + group + 1) * WIDTH + rank) * N + j] = op(above[j], all[j]);
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(flags + tiles + group + 1, 1);
    }
}
