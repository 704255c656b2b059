// Vectors of any size, accessed 16 bytes at a time.
#pragma once
#include <hip/hip_runtime.h>

// N neighbouring elements, accessed 16 bytes at a time where the address allows it.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) WideVector {
    T v[N];
};

// Whether the address allows accesses of a whole WideVector, or of 16 bytes of it.
template <int N, typename T>
__device__ __forceinline__ bool is_wide_aligned(const T* p) {
    return (unsigned long long)p % alignof(WideVector<T, N>) == 0;
}

template <int N, typename T>
__device__ __forceinline__ WideVector<T, N> load_aligned(const T* p) {
    return *reinterpret_cast<const WideVector<T, N>*>(p);
}

template <int N, typename T>
__device__ __forceinline__ WideVector<T, N> load_wide(const T* p) {
    if (is_wide_aligned<N>(p)) return load_aligned<N>(p);
    WideVector<T, N> out;
    for (int k = 0; k < N; ++k) out.v[k] = p[k];
    return out;
}

template <int N, typename T>
__device__ __forceinline__ void store_wide(T* p, const WideVector<T, N>& in) {
    if (is_wide_aligned<N>(p)) {
        *reinterpret_cast<WideVector<T, N>*>(p) = in;
    } else {
        for (int k = 0; k < N; ++k) p[k] = in.v[k];
    }
}

// Stores a vector at an aligned address.
template <int N, typename T>
__device__ __forceinline__ void store_aligned(T* p, const WideVector<T, N>& vector) {
    if constexpr (sizeof(vector) == 16) {  // NVRTC may split the store of a struct, but not this
        uint4 words;
        __builtin_memcpy(&words, vector.v, 16);
        *reinterpret_cast<uint4*>(p) = words;
    } else {
        *reinterpret_cast<WideVector<T, N>*>(p) = vector;
    }
}

// Stores a vector of 4, 8 or 16 bytes at an aligned address of global memory by one access. NVIDIA's compiler splits
// other stores into words or halves wherever it cannot follow the address, as behind a division.
template <int N, typename T>
__device__ __forceinline__ void store_whole(T* p, const WideVector<T, N>& vector) {
#if defined(__CUDA_ARCH__)
    constexpr int WORDS = sizeof(vector) / 4;
    static_assert(WORDS == 1 || WORDS == 2 || WORDS == 4, "a vector of 4, 8 or 16 bytes");
    unsigned words[WORDS];
    __builtin_memcpy(words, vector.v, sizeof(vector));
    const size_t to = __cvta_generic_to_global(p);
    if constexpr (WORDS == 4)
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
    else if constexpr (WORDS == 2)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
    else
        asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
#else
    *reinterpret_cast<WideVector<T, N>*>(p) = vector;
#endif
}

// A loaded float or integer, for which what follows waits here: compilers compute it earlier, and wait for it before the
// loads that stand between.
template <typename T>
__device__ __forceinline__ auto behind_loads(T x) {
    auto held = +x;  // bool and bytes as int: registers hold no less
#if defined(__AMDGCN__)
    asm volatile("" : "+v"(held));
#elif defined(__CUDA_ARCH__)
    if constexpr (decltype(held)(0.5f) != 0)
        asm volatile("" : "+f"(held));
    else if constexpr (sizeof(held) == 8)
        asm volatile("" : "+l"(held));
    else
        asm volatile("" : "+r"(held));
#endif
    return held;
}

// Half types as their bit patterns.
template <typename T>
__device__ __forceinline__ const unsigned short* as_uint16(const T* p) {
    return reinterpret_cast<const unsigned short*>(p);
}

// The neighbouring elements in 16 bytes.
template <typename T>
struct Vector16B {
    T v[16 / sizeof(T)];
};

#if defined(__AMDGCN__)
typedef unsigned Bits128 __attribute__((ext_vector_type(4)));  // a struct would be loaded word by word
#else
typedef uint4 Bits128;
#endif

// Loads 16 bytes at once; the address is a multiple of 16.
template <typename T>
__device__ __forceinline__ Vector16B<T> load_16_bytes(const T* p) {
    const Bits128 raw = *reinterpret_cast<const Bits128*>(p);
    Vector16B<T> out;
    __builtin_memcpy(&out, &raw, 16);
    return out;
}
