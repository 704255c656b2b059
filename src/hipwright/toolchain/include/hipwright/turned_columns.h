// Stores of columns that a block computed as rows: the elements of a column lie side by side.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/tile.h>

// Rows of a column that a block of DOWN rows of threads stages at a time: a line of memory, within 20 KiB of LDS.
constexpr int turned_rows(int lanes, int items, int columns, int size) {
    int rows = lanes;
    while (rows < lanes * items && rows < 32 && columns * (2 * rows + 2) * size <= 20480) rows *= 2;
    return rows;
}

// Stores the tile of ITEMS rows of N neighbouring columns that each thread of a block has, laid out as load_columns has
// it, to p, where each column is a contiguous run of n elements. ACROSS threads side by side have vectors of columns;
// `columns` of them are in a line, of which there are `lines`. base: the first row of the thread. All threads call it.
template <int BLOCK_SIZE, int ACROSS, int ITEMS, int N, typename T, typename V, typename I>
__device__ void store_turned_columns(T* __restrict__ p, I base, I n, I columns, I lines,
                                     const Tile<V, ITEMS * N>& tile) {
    constexpr int DOWN = BLOCK_SIZE / ACROSS, ACROSS_ALL = ACROSS * N;
    constexpr int STAGED = turned_rows(DOWN, ITEMS, ACROSS_ALL, sizeof(T)), TURN = STAGED / DOWN;
    __shared__ T staged[ACROSS_ALL][STAGED + (sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1)];  // an odd number of words
    const int side = threadIdx.x % ACROSS, lane = threadIdx.x / ACROSS;
    const I vectors = (columns + N - 1) / N, first = blockIdx.x * (I)ACROSS;
    const bool even = columns % N == 0;  // the columns of the block lie side by side
    const I left = (lines * vectors - first) * N;
#pragma unroll
    for (int done = 0; done < ITEMS; done += TURN) {
        const I start = base - lane + done * DOWN;
        if (start >= n) break;
        __syncthreads();  // what was staged before has been stored
#pragma unroll
        for (int k = 0; k < TURN; ++k) {
#pragma unroll
            for (int j = 0; j < N; ++j)  // neighbouring threads write to neighbouring banks
                if (done + k < ITEMS) staged[j * ACROSS + side][k * DOWN + lane] = T(tile.v[(done + k) * N + j]);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < ACROSS_ALL * STAGED; i += BLOCK_SIZE) {
            const int column = i / STAGED, row = i % STAGED;
            if (column >= left || start + row >= n) continue;
            I place = first * N + column;
            if (!even) {
                const I vector = first + column / N, across = vector % vectors * N + column % N;
                if (across >= columns) continue;
                place = vector / vectors * columns + across;
            }
            p[place * n + start + row] = staged[column % N * ACROSS + column / N][row];
        }
    }
}
