// Blocks that wait for one another: tickets, barriers and partial results in global memory.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/block_reduce.h>

// Returns the number of this block in the order in which blocks start: a block that waits only for lower numbers waits
// for blocks that already run.
__device__ inline int take_block_ticket(int* counter) {
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(counter, 1);
    __syncthreads();
    return ticket;
}

// Waits until `expected` blocks have arrived. What each wrote before is then visible to all.
__device__ inline void cooperative_barrier(int* arrived, int expected) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < expected) {
        }
    }
    __syncthreads();
    __threadfence();
}

// Whether this block is the last of `blocks` cooperative blocks to arrive. What the others' first threads wrote, and what
// all wrote before a barrier, is then visible to it. last: memory in LDS for the answer.
__device__ inline bool is_last_block(int* arrived, int blocks, int* last) {
    if (threadIdx.x == 0) {
        __threadfence();
        *last = atomicAdd(arrived, 1) == blocks - 1;
    }
    __syncthreads();
    __threadfence();
    return *last;
}

__device__ inline bool is_last_block(int* arrived, int blocks) {
    __shared__ int last;
    return is_last_block(arrived, blocks, &last);
}

// Combines the partials of cooperative blocks, in the same order in every group of 32 lanes, without a barrier.
template <typename T, typename Op>
__device__ T combine_partials(const T* partials, int blocks, T start, Op op) {
    for (int k = threadIdx.x % 32; k < blocks; k += 32) start = op(start, partials[k]);
    return lane_reduce<32>(start, op);
}

// Combines the partials of many cooperative blocks by all threads of a block, in a fixed order. Every thread returns the
// result.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T combine_partials_by_block(const T* partials, int blocks, T start, Op op) {
    for (int k = threadIdx.x; k < blocks; k += BLOCK_SIZE) start = op(start, partials[k]);
    return block_reduce<BLOCK_SIZE>(start, op);
}

// Combines the partials of the cooperative blocks that share N columns of each of WIDTH threads: those of one block lie
// side by side, by column and then by thread. Every thread returns the results, as of column_reduce.
template <int BLOCK_SIZE, int WIDTH, int N, typename T, typename Op>
__device__ void combine_column_partials(T (&v)[N], const T* partials, int blocks, T start, Op op) {
    constexpr int ALL = WIDTH * N, FITTING = BLOCK_SIZE / ALL, GROUPS = FITTING < 2 ? 1 : FITTING < 16 ? FITTING : 16;
    constexpr int AT_ONCE = 8;  // loads in flight
    __shared__ T totals[GROUPS * ALL];
    __syncthreads();  // `totals` may still be read from the previous call
    for (int k = threadIdx.x; k < GROUPS * ALL; k += BLOCK_SIZE) {
        T total = start;
        for (int first = k / ALL; first < blocks; first += GROUPS * AT_ONCE) {
            T found[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const int block = first + i * GROUPS;
                found[i] = start;
                if (block < blocks) found[i] = partials[block * ALL + k % ALL];  // a choice of structs is one of addresses
            }
            total = op(total, combine_strided(found, 1, AT_ONCE, op));
        }
        totals[k] = total;
    }
    __syncthreads();
    if constexpr (GROUPS > 1) {
        if ((int)threadIdx.x < ALL) totals[threadIdx.x] = combine_strided(&totals[threadIdx.x], ALL, GROUPS, op);
        __syncthreads();
    }
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = totals[j * WIDTH + threadIdx.x % WIDTH];
}

// Publishes a partial to the other cooperative blocks: floats, two in a 64-bit word, inverted, in memory that is zeroed
// before. A word that is not zero is complete, so that readers need no fence: NaNs are stored in one form, of which no
// word becomes zero.
template <typename T>
__device__ void publish_partial(long* address, const T& partial) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    unsigned words[2 * PAIRS] = {};
    __builtin_memcpy(words, &partial, sizeof(T));
#pragma unroll
    for (int k = 0; k < 2 * PAIRS; ++k)
        if ((words[k] & 0x7fffffffu) > 0x7f800000u) words[k] = 0x7fc00000u;  // canonical NaN
#pragma unroll
    for (int k = 0; k < PAIRS; ++k)
        __hip_atomic_store(address + k, ~(long)((unsigned long)words[2 * k + 1] << 32 | words[2 * k]), __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_AGENT);
}

// Returns a partial that another block publishes; loads all its words again until none is zero.
template <typename T>
__device__ T await_partial(long* address) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    long words[PAIRS] = {};
    for (bool complete = false; !complete;) {
        complete = true;
#pragma unroll
        for (int k = 0; k < PAIRS; ++k)
            if (words[k] == 0) words[k] = __hip_atomic_load(address + k, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) complete = complete && words[k] != 0;
    }
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) words[k] = ~words[k];
    T partial;
    __builtin_memcpy(&partial, words, sizeof(T));
    return partial;
}

// Combines the partials of all cooperative blocks with v, in a fixed order. Every thread returns the result.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T combine_published_partials(long* addresses, int blocks, T v, Op op) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    for (int k = threadIdx.x; k < blocks; k += BLOCK_SIZE) v = op(v, await_partial<T>(addresses + k * PAIRS));
    __syncthreads();  // lanes leave the waiting loop at different times on NVIDIA
    return block_reduce<BLOCK_SIZE>(v, op);
}
