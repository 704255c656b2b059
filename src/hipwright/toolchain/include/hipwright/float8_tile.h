// Tiles of floats rounded to 8-bit floats, in pairs where an instruction converts pairs.
#pragma once
#include <hip/hip_runtime.h>
#include <hipwright/store_float8.h>
#include <hipwright/tile.h>

// The numbers of a tile as float8_e4m3fn holds them.
template <int SIZE>
__device__ __forceinline__ Tile<float, SIZE> round_tile_float8_e4m3fn(const Tile<float, SIZE>& tile) {
    Tile<float, SIZE> out;
#ifdef FLOAT8_PAIRS
    if constexpr (SIZE % 2 == 0) {
#pragma unroll
        for (int k = 0; k < SIZE; k += 2) {
            const unsigned pair = float8_pair<FLOAT8_E4M3FN>(tile.v[k], tile.v[k + 1]);
            unsigned halves;
            asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)pair));
            asm("{.reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high;}"
                : "=f"(out.v[k]), "=f"(out.v[k + 1])
                : "r"(halves));
        }
        return out;
    }
#endif
#pragma unroll
    for (int k = 0; k < SIZE; ++k) out.v[k] = round_float8_e4m3fn(tile.v[k]);
    return out;
}
