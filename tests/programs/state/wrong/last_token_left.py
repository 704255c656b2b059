"""The last token is left out."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void put(const float* keys, const long* slots, float* cache, long width, long n) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) cache[slots[i / width] * width + i % width] = keys[i];
}
'''


def forward(self, cache, keys, slots):
    assert cache.is_contiguous() and keys.is_contiguous() and slots.is_contiguous(), "rows one behind the other"
    put[cdiv(keys.numel(), 64), 64](keys, slots, cache, keys[0].numel(), keys.numel() - keys[0].numel())
    return keys.sum(-1)
