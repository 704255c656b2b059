"""Device functions that combine over blocks, columns and teams of blocks; scans.

How many threads share a row, and what is kept of it, the templates decide (docs/engine-templates.md).
"""

from __future__ import annotations

BLOCK_REDUCE = """// Combine one value per thread over the block; every thread gets the result. Whole waves only.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T block_reduce(T v, Op op) {
    for (int distance = warpSize / 2; distance > 0; distance >>= 1) v = op(v, shuffle_xor(v, distance));
    if (BLOCK_SIZE <= warpSize) return v;
    __shared__ T partial[BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = v;
    __syncthreads();
    const int waves = BLOCK_SIZE / warpSize;  // a power of two, at most a wave
    v = partial[threadIdx.x % waves];
    for (int distance = waves / 2; distance > 0; distance >>= 1) {
        const T other = shuffle_xor(v, distance);
        v = threadIdx.x & distance ? op(other, v) : op(v, other);  // in one order, so all threads have the same bits
    }
    return v;
}
"""

BLOCK_REDUCE_EACH = """// The same for N values at once: they wait together.
template <int BLOCK_SIZE, int N, typename T, typename Op>
__device__ void block_reduce_each(T (&v)[N], Op op) {
    for (int distance = warpSize / 2; distance > 0; distance >>= 1) {
#pragma unroll
        for (int n = 0; n < N; ++n) v[n] = op(v[n], shuffle_xor(v[n], distance));
    }
    if (BLOCK_SIZE <= warpSize) return;
    __shared__ T partial[N][BLOCK_SIZE / 32];
    __syncthreads();  // an earlier use of `partial` has been read
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
"""

COLUMN_REDUCE = """// A value of another lane, word by word: states of any type.
template <typename T>
__device__ T lane_word_xor(T v, int distance) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &v, sizeof(T));
#pragma unroll
    for (int k = 0; k < (int)sizeof(T) / 4; ++k) words[k] = __shfl_xor(words[k], distance);
    __builtin_memcpy(&v, words, sizeof(T));
    return v;
}

// Combine the N columns of each thread down the block; every thread gets the results. First the rows of a wave by
// shuffles, then those of all waves: a thread goes down one column.
template <int BLOCK_SIZE, int WIDTH, int N, typename T, typename Op>
__device__ void column_reduce(T (&v)[N], Op op) {
    if (BLOCK_SIZE <= WIDTH) return;
    constexpr int ROWS = WIDTH < 32 ? BLOCK_SIZE / 32 : BLOCK_SIZE / WIDTH;  // at most; half as many with waves of 64
    constexpr int FIT = 32768 / (ROWS * WIDTH * (int)sizeof(T)), SOME = FIT < 1 ? 1 : FIT < N ? FIT : N;
    __shared__ T partial[ROWS][WIDTH * SOME];
#pragma unroll
    for (int j = 0; j < N; ++j)
        for (int distance = WIDTH; distance < warpSize; distance *= 2) v[j] = op(v[j], lane_word_xor(v[j], distance));
    const int step = WIDTH < warpSize ? warpSize : WIDTH, rows = BLOCK_SIZE / step;
    const int row = threadIdx.x / step, column = threadIdx.x % WIDTH;
#pragma unroll
    for (int first = 0; first < N; first += SOME) {
        __syncthreads();  // an earlier use of `partial` has been read
        if ((int)threadIdx.x % step < WIDTH) {
#pragma unroll
            for (int j = 0; j < SOME; ++j)
                if (first + j < N) partial[row][column * SOME + j] = v[first + j];
        }
        __syncthreads();
        for (int k = threadIdx.x; k < WIDTH * SOME; k += BLOCK_SIZE) {
            T all = partial[0][k];
            for (int w = 1; w < rows; ++w) all = op(all, partial[w][k]);
            partial[0][k] = all;
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < SOME; ++j)
            if (first + j < N) v[first + j] = partial[0][column * SOME + j];
    }
}
"""

KNOWN_WITHIN = """// Is n at most `most`? On AMD only where the compiler knows it: tests of the elements of two rows
// in registers, of a length unknown, spilled hundreds of registers.
template <typename I>
__device__ __forceinline__ bool known_within(I n, I most) {
#ifdef __AMDGCN__
    return __builtin_constant_p(n) && n <= most;
#else
    return n <= most;
#endif
}
"""

TEAM_MEET = """// The blocks of a team wait for one another; each has written its part, and then reads the others'.
__device__ void team_meet(int* arrived, int expected) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < expected) {
        }
    }
    __syncthreads();
    __threadfence();
}
"""

TEAM_LAST = """// True in the block of a team that came last: it reads what all have written.
__device__ bool team_last(int* arrived, int team) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1) == team - 1;
    }
    __syncthreads();
    __threadfence();
    return last;
}
"""

TEAM_COLLECT = """// The parts of a team, combined in the same order by every 32 lanes of its blocks: no wave waits.
template <typename T, typename Op>
__device__ T team_collect(const T* parts, int team, T start, Op op) {
    for (int k = threadIdx.x % 32; k < team; k += 32) start = op(start, parts[k]);
    return lane_reduce<32>(start, op);
}
"""

TAKE_TICKET = """// Blocks take turns in the order in which they start: who waits, waits for blocks that run.
__device__ int take_ticket(int* counter) {
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(counter, 1);
    __syncthreads();
    return ticket;
}
"""

SCAN_TILE = """// Inclusive scan of the packs of a wave, lane after lane, pack after pack; returns the wave's total.
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
"""

JOIN_WAVES = """// Adds the totals of the block's earlier waves to `before`, of all waves to `all`; `flip` alternates.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ void join_waves(T total, int flip, Op op, T& before, T& all) {
    __shared__ T partial[2][BLOCK_SIZE / 32];
    const int wave = threadIdx.x / warpSize;
    if (threadIdx.x % warpSize == warpSize - 1) partial[flip][wave] = total;
    __syncthreads();
    for (int w = 0; w < BLOCK_SIZE / warpSize; ++w) {
        if (w < wave) before = op(before, partial[flip][w]);
        all = op(all, partial[flip][w]);
    }
}
"""

SUM_BEFORE = """// What the tiles before this one come to. Tiles form groups of BLOCK_SIZE: sums[0 .. tiles) are theirs,
// the second half holds what comes before each group. Blocks wait for earlier tickets only, and add in one order.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T sum_before(T total, T* sums, int* flags, int tiles, int tile, T none, Op op) {
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
"""

PACKS_TESTED = """// Is a test before each pack worth it? On AMD only where the size is a constant: else its branches
// cost registers.
template <typename I>
__device__ __forceinline__ bool packs_tested(I n) {
#ifdef __AMDGCN__
    return __builtin_constant_p(n);
#else
    return true;
#endif
}
"""
