// Values that blocks exchange at every step of a loop: each a 64-bit word of a float and the number of its step.
#pragma once
#include <hip/hip_runtime.h>

// Publishes a value of a step, a number that no word of this memory had before. The word tells that it is complete, so
// that no fence is needed.
__device__ __forceinline__ void publish_at_step(long* address, float value, int step) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, 4);
    __hip_atomic_store(address, (long)((unsigned long)step << 32 | bits), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Waits for COUNT words of a step and calls use(number, value) for each. Numbers are first, first + distance, and so on;
// those from `end` on are left out.
template <int COUNT, typename Use>
__device__ __forceinline__ void await_step(const long* words, int first, int distance, int end, int step, Use use) {
    long found[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) found[i] = first + i * distance < end ? 0 : (long)step << 32;
    for (bool complete = false; !complete;) {
        complete = true;
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if ((int)(found[i] >> 32) != step)
                found[i] =
                    __hip_atomic_load(words + first + i * distance, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) complete = complete && (int)(found[i] >> 32) == step;
#ifndef __CUDA_ARCH__
        if (!complete) __builtin_amdgcn_s_sleep(1);
#endif
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (first + i * distance >= end) continue;
        const unsigned bits = (unsigned)found[i];
        float value;
        __builtin_memcpy(&value, &bits, 4);
        use(first + i * distance, value);
    }
}
