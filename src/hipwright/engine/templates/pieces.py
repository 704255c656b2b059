"""Device functions that several call templates define: 16-byte reads, sums over neighbouring lanes."""

LOAD_16 = """// 16 bytes read at once, as neighbouring elements; the address is a multiple of 16.
template <typename T>
struct Sixteen {
    T v[16 / sizeof(T)];
};

#if defined(__AMDGCN__)
typedef unsigned Bits128 __attribute__((ext_vector_type(4)));  // a struct would be read word by word
#else
typedef uint4 Bits128;
#endif

template <typename T>
__device__ __forceinline__ Sixteen<T> load_16(const T* p) {
    const Bits128 raw = *reinterpret_cast<const Bits128*>(p);
    Sixteen<T> out;
    __builtin_memcpy(&out, &raw, 16);
    return out;
}
"""

GATHER = """// Sum over SPLIT neighbouring lanes. Rows are dealt out on the way: a lane ends with max(1, ROWS / SPLIT)
// of them, the first being lane_row<ROWS, SPLIT>(lane).
template <int ROWS, int SPLIT>
__device__ void lane_gather(float* v, int lane) {
    if constexpr (SPLIT > 1 && ROWS > 1) {
        const bool upper = lane & (SPLIT / 2);
#pragma unroll
        for (int r = 0; r < ROWS / 2; ++r) {
            const float given = upper ? v[r] : v[r + ROWS / 2];
            v[r] = (upper ? v[r + ROWS / 2] : v[r]) + __shfl_xor(given, SPLIT / 2);
        }
        lane_gather<ROWS / 2, SPLIT / 2>(v, lane);
    } else if constexpr (SPLIT > 1) {
        v[0] += __shfl_xor(v[0], SPLIT / 2);
        lane_gather<1, SPLIT / 2>(v, lane);
    }
}

template <int ROWS, int SPLIT>
__device__ int lane_row(int lane) {
    int row = 0;
    for (int distance = SPLIT / 2, rows = ROWS / 2; distance > 0 && rows > 0; distance /= 2, rows /= 2)
        row += lane & distance ? rows : 0;
    return row;
}
"""
