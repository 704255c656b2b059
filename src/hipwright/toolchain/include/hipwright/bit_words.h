// Words of packed bits, and how many bits are set up to one of them.
#pragma once
#include <hip/hip_runtime.h>

// Four bytes at an address that is a multiple of four, the first one lowest.
__device__ inline int load_bit_word(const unsigned char* bytes) {
    return *reinterpret_cast<const int*>(bytes);
}

// The set bits among bit 0 to bit `last` of a word: none where `last` is negative, all from 31 on.
__device__ inline int count_bits_up_to(int word, int last) {
    const unsigned kept = last < 0 ? 0u : 0xffffffffu >> (31 - (last < 31 ? last : 31));
    return __popc((unsigned)word & kept);
}
