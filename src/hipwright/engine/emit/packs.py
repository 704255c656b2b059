"""Device functions that move packs of 16 bytes, as the choice `stream` has them (plan/streaming.py)."""

from __future__ import annotations

PACKED = ("no", "stores", "loads", "both")
"""Settings of programs whose kernels move packs: which accesses leave the caches first."""
KEEP = "keep"
"""The setting in which what is read stays in the last-level cache."""

_STREAMED_WORDS = """// 16 bytes at any address; nobody needs them again soon, so they leave the caches first.
#ifdef __clang__
typedef unsigned Passing __attribute__((ext_vector_type(4), aligned(1)));
#else
typedef uint4 Passing;
#endif

"""
_STREAMED_LOAD = """    if constexpr (N * sizeof(T) % 16 == 0) {
        Passing words[N * sizeof(T) / 16];
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            words[k] = __builtin_nontemporal_load(reinterpret_cast<const Passing*>(p) + k);
        __builtin_memcpy(v, words, sizeof(words));
        return;
    }
"""
_STREAMED_STORE = """    if constexpr (N * sizeof(T) % 16 == 0) {
        Passing words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k)
            __builtin_nontemporal_store(words[k], reinterpret_cast<Passing*>(p) + k);
        return;
    }
"""
KEPT = """// What is read stays in the last cache and what is written leaves it first, where the device takes the hint.
template <typename T>
__device__ __forceinline__ const T* kept(const T* p) {
#ifdef hw_kept
    return hw_kept(p);
#else
    return p;
#endif
}

"""
_PACK = """// N neighbours; as wide an access as the device has.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T v[N];
};

// Does the address suit packs? AMD reads and writes them anywhere.
template <typename T, int N>
__device__ bool packs_fit(const T* p) {
#ifdef __AMDGCN__
    return true;
#else
    return N == 1 || (size_t)p % alignof(Pack<T, N>) == 0;
#endif
}

"""
_READ_PACK = """template <int N, typename T>
__device__ void read_pack(const T* p, T* v) {
"""
_READ = """#ifdef __AMDGCN__
    __builtin_memcpy(v, p, N * sizeof(T));
#else
    const Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = pack.v[k];
#endif
}

"""
_WRITE_PACK = """template <int N, typename T>
__device__ void write_pack(T* p, const T* v) {
"""
_WRITE = """#ifdef __AMDGCN__
    __builtin_memcpy(p, v, N * sizeof(T));
#else
    if constexpr (N * sizeof(T) % 16 == 0) {  // NVRTC may take the store of a pack's elements apart, but not this
        uint4 words[N * sizeof(T) / 16];
        __builtin_memcpy(words, v, sizeof(words));
#pragma unroll
        for (int k = 0; k < N * (int)sizeof(T) / 16; ++k) reinterpret_cast<uint4*>(p)[k] = words[k];
    } else {
        Pack<T, N> pack;
#pragma unroll
        for (int k = 0; k < N; ++k) pack.v[k] = v[k];
        *reinterpret_cast<Pack<T, N>*>(p) = pack;
    }
#endif
}

// What one thread takes at a time: SIZE elements in registers.
template <typename T, int SIZE>
struct Tile {
    T v[SIZE];
};
"""


def tile_functions(stream: str = "no") -> str:
    """The structures `Pack` and `Tile`, and how packs are read and written; stream: one of PACKED, or KEEP."""
    loads, stores = stream in ("loads", "both"), stream in ("stores", "both")
    return (
        _PACK
        + (_STREAMED_WORDS if loads or stores else "")
        + _READ_PACK
        + (_STREAMED_LOAD if loads else "")
        + _READ
        + _WRITE_PACK
        + (_STREAMED_STORE if stores else "")
        + _WRITE
    )
