// Reductions of a value, an array or columns over the threads of a block.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/lanes.h>

// Reduces one value per thread over the block, which consists of whole waves. Every thread returns the result.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T block_reduce(T v, Op op) {
    for (int distance = warpSize / 2; distance > 0; distance >>= 1) v = op(v, shuffle_xor(v, distance));
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ T partial[BLOCK_SIZE / 32];
    __syncthreads();  // `partial` may still be read from the previous call
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;  // a power of two, at most warpSize
    v = partial[threadIdx.x % waves];
    for (int distance = waves / 2; distance > 0; distance >>= 1) {
        const T other = shuffle_xor(v, distance);
        v = threadIdx.x & distance ? op(other, v) : op(v, other);  // in the same order in all threads
    }
    return v;
}

// Reduces N values per thread over the block, with the barriers of one reduction.
template <int BLOCK_SIZE, int N, typename T, typename Op>
__device__ void block_reduce_array(T (&v)[N], Op op) {
    for (int distance = warpSize / 2; distance > 0; distance >>= 1) {
#pragma unroll
        for (int n = 0; n < N; ++n) v[n] = op(v[n], shuffle_xor(v[n], distance));
    }
    if (BLOCK_SIZE <= warpSize) return;
    __shared__ T partial[N][BLOCK_SIZE / 32];
    __syncthreads();  // `partial` may still be read from the previous call
#pragma unroll
    for (int n = 0; n < N; ++n)
        if (threadIdx.x % warpSize == 0) partial[n][threadIdx.x / warpSize] = v[n];
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = partial[n][threadIdx.x % waves];
    for (int distance = waves / 2; distance > 0; distance >>= 1) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const T other = shuffle_xor(v[n], distance);
            v[n] = threadIdx.x & distance ? op(other, v[n]) : op(v[n], other);
        }
    }
}

// shuffle_xor for a struct, word by word.
template <typename T>
__device__ T shuffle_xor_words(T v, int distance) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &v, sizeof(T));
#pragma unroll
    for (int k = 0; k < (int)sizeof(T) / 4; ++k) words[k] = __shfl_xor(words[k], distance);
    __builtin_memcpy(&v, words, sizeof(T));
    return v;
}

// Combines the values at `first`, `stride` apart, of `sets` sets in their order.
template <typename T, typename Op>
__device__ T combine_strided(const T* first, int stride, int sets, Op op) {
    T total = first[0];
    for (int k = 1; k < sets; ++k) total = op(total, first[k * stride]);
    return total;
}

// Reduces N columns per thread over the rows of a block, WIDTH threads wide. Every thread returns the results: lanes of
// a wave combine by shuffles, then waves through LDS, where a thread combines one column.
template <int BLOCK_SIZE, int WIDTH, int N, typename T, typename Op>
__device__ void column_reduce(T (&v)[N], Op op) {
    if (BLOCK_SIZE <= WIDTH) return;
    constexpr int MAX_ROWS = WIDTH < 32 ? BLOCK_SIZE / 32 : BLOCK_SIZE / WIDTH;  // half with waves of 64
    constexpr int LDS_COLUMNS = 16384 / (MAX_ROWS * WIDTH * (int)sizeof(T)),  // four blocks fit a compute unit of AMD
                  CHUNK = LDS_COLUMNS < 1 ? 1 : LDS_COLUMNS < N ? LDS_COLUMNS : N;
    __shared__ T partial[MAX_ROWS][CHUNK * WIDTH];
#pragma unroll
    for (int j = 0; j < N; ++j)
        for (int distance = WIDTH; distance < warpSize; distance *= 2)
            v[j] = op(v[j], shuffle_xor_words(v[j], distance));
    const int step = WIDTH < warpSize ? warpSize : WIDTH, rows = BLOCK_SIZE / step;
    const int row = threadIdx.x / step, column = threadIdx.x % WIDTH;
#pragma unroll
    for (int first = 0; first < N; first += CHUNK) {
        __syncthreads();  // `partial` may still be read from the previous call
        if ((int)threadIdx.x % step < WIDTH) {
#pragma unroll
            for (int j = 0; j < CHUNK; ++j)
                if (first + j < N) partial[row][j * WIDTH + column] = v[first + j];  // neighbours to neighbouring banks
        }
        __syncthreads();
        for (int k = threadIdx.x; k < CHUNK * WIDTH; k += BLOCK_SIZE)
            partial[0][k] = combine_strided(&partial[0][k], CHUNK * WIDTH, rows, op);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < CHUNK; ++j)
            if (first + j < N) v[first + j] = partial[0][j * WIDTH + column];
    }
}
