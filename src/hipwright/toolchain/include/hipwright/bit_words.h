// Words of packed bits: loads from any address, and how many bits are set up to one of them.
#pragma once
#include <hip/hip_runtime.h>

// Four bytes, the first one lowest; one access where the address is a multiple of four.
__device__ inline int load_bit_word(const unsigned char* bytes) {
    if (reinterpret_cast<unsigned long>(bytes) % 4 == 0) return *reinterpret_cast<const int*>(bytes);
    return (int)((unsigned)bytes[0] | (unsigned)bytes[1] << 8 | (unsigned)bytes[2] << 16 | (unsigned)bytes[3] << 24);
}

// The set bits among bit 0 to bit `last` of a word: none where `last` is negative, all from 31 on.
__device__ inline int count_bits_up_to(int word, int last) {
    const unsigned kept = last < 0 ? 0u : 0xffffffffu >> (31 - (last < 31 ? last : 31));
    return __popc((unsigned)word & kept);
}
