#pragma once
#include <hip/hip_runtime.h>
#include "block_reduce.h"

// Blocks take turns in the order in which they start: who waits, waits for blocks that run.
__device__ int take_block_ticket(int* counter) {
    __shared__ int ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(counter, 1);
    __syncthreads();
    return ticket;
}

// The blocks of a team wait for one another; each has written its part, and then reads the others'.
__device__ void cooperative_barrier(int* arrived, int expected) {
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) < expected) {
        }
    }
    __syncthreads();
    __threadfence();
}

// True in the block of a team that came last: it reads what all have written.
__device__ bool is_last_block(int* arrived, int team) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1) == team - 1;
    }
    __syncthreads();
    __threadfence();
    return last;
}

// The parts of a team, combined in the same order by every 32 lanes of its blocks: no wave waits.
template <typename T, typename Op>
__device__ T combine_partials(const T* parts, int team, T start, Op op) {
    for (int k = threadIdx.x % 32; k < team; k += 32) start = op(start, parts[k]);
    return lane_reduce<32>(start, op);
}

// What the blocks of a team hand one another: floats, two a word, inverted, in memory that begins as zeros. A
// word would be zero only of two NaN that nobody writes: who reads another has it, and waits for no fence.
template <typename T>
__device__ void publish_partial(long* place, const T& part) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    unsigned words[2 * PAIRS] = {};
    __builtin_memcpy(words, &part, sizeof(T));
#pragma unroll
    for (int k = 0; k < 2 * PAIRS; ++k)
        if ((words[k] & 0x7fffffffu) > 0x7f800000u) words[k] = 0x7fc00000u;  // one NaN for all
#pragma unroll
    for (int k = 0; k < PAIRS; ++k)
        __hip_atomic_store(place + k, ~(long)((unsigned long)words[2 * k + 1] << 32 | words[2 * k]), __ATOMIC_RELAXED,
                           __HIP_MEMORY_SCOPE_AGENT);
}

// A part that another block hands over: its words are asked for at once, and again as long as one is not there.
template <typename T>
__device__ T await_partial(long* place) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    long seen[PAIRS] = {};
    for (bool all = false; !all;) {
        all = true;
#pragma unroll
        for (int k = 0; k < PAIRS; ++k)
            if (seen[k] == 0) seen[k] = __hip_atomic_load(place + k, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#pragma unroll
        for (int k = 0; k < PAIRS; ++k) all = all && seen[k] != 0;
    }
#pragma unroll
    for (int k = 0; k < PAIRS; ++k) seen[k] = ~seen[k];
    T part;
    __builtin_memcpy(&part, seen, sizeof(T));
    return part;
}

// All parts of a team, one to each thread, combined in one order; every thread of the block gets the result.
template <int BLOCK_SIZE, typename T, typename Op>
__device__ T combine_published_partials(long* places, int team, T v, Op op) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    for (int k = threadIdx.x; k < team; k += BLOCK_SIZE) v = op(v, await_partial<T>(places + k * PAIRS));
    __syncthreads();  // NVIDIA's lanes leave such a loop one by one, and would shuffle with who is there
    return block_reduce<BLOCK_SIZE>(v, op);
}
