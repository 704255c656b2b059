"""Device functions of blocks that wait for one another: what a block of a team hands the others
(templates/rows/team.py)."""

from __future__ import annotations

TEAM_HAND = """\
// What the blocks of a team hand one another: floats, two a word, inverted, in memory that begins as zeros. A
// word would be zero only of two NaN that nobody writes: who reads another has it, and waits for no fence.
template <typename T>
__device__ void team_hand(long* place, const T& part) {
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
"""

STASH_PACK = """\
// A pack into LDS, where this thread alone reads it again. NVIDIA copies beside the registers, and stash_wait waits.
template <int N, typename T>
__device__ void stash_pack(T* to, const T* from) {
#ifdef __CUDA_ARCH__
    if constexpr (N * sizeof(T) == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :
                     : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from))
                     : "memory");
        return;
    }
#endif
    T v[N];
    read_pack<N>(from, v);
    __builtin_memcpy(to, v, sizeof(v));
}

__device__ void stash_wait() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}
"""

STASH_TILE = """\
// A tile of p[0 .. n) into LDS, from this thread's place on and `across` elements a pack.
template <int ITEMS, int N, typename T, typename I>
__device__ void stash_tile(T* held, const T* __restrict__ p, I base, I step, I n, int across) {
    const bool fit = packs_fit<T, N>(p);
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        T* const to = held + k * across;
        if (fit && at + N <= n) {
            stash_pack<N>(to, p + at);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j)
                if (at + j < n) to[j] = p[at + j];
        }
    }
}
"""

STASH_RUNS = """\
// The same of a row of runs: element `at` lies at p[at / run * stride + at % run].
template <int ITEMS, int N, typename T, typename I>
__device__ void stash_runs(T* held, const T* __restrict__ p, I base, I step, I n, int across, I stride, I run) {
    const bool fit = N == 1 || (run % N == 0 && packs_fit<T, N>(p) && packs_fit<T, N>(p + stride));
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
        const I at = base + k * step;
        const T* outer = p + at / run * stride;
        I inner = at % run;
        T* const to = held + k * across;
        if (fit && at + N <= n) {
            stash_pack<N>(to, outer + inner);
        } else {
#pragma unroll
            for (int j = 0; j < N; ++j) {
                if (at + j < n) to[j] = outer[inner];
                if (++inner == run) inner = 0, outer += stride;
            }
        }
    }
}
"""

TEAM_GATHER = """\
// A part that another block hands over: its words are asked for at once, and again as long as one is not there.
template <typename T>
__device__ T team_part(long* place) {
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
__device__ T team_gather(long* places, int team, T v, Op op) {
    constexpr int PAIRS = (sizeof(T) + 7) / 8;
    for (int k = threadIdx.x; k < team; k += BLOCK_SIZE) v = op(v, team_part<T>(places + k * PAIRS));
    __syncthreads();  // NVIDIA's lanes leave such a loop one by one, and would shuffle with who is there
    return block_reduce<BLOCK_SIZE>(v, op);
}
"""
