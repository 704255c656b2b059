// A warp scans a row in pieces of 32, with shuffles up and a carry.
#include <cuda_runtime.h>

__global__ void scan_rows(const float* x, float* y, int cols) {
    const unsigned lane = threadIdx.x & 31u;
    const float* in = x + (size_t)blockIdx.x * cols;
    float* out = y + (size_t)blockIdx.x * cols;
    float carry = 0.f;
    for (int base = 0; base < cols; base += 32) {
        int c = base + lane;
        float v = c < cols ? in[c] : 0.f;
        for (int d = 1; d < 32; d <<= 1) {
            float left = __shfl_up_sync(0xffffffff, v, d);
            if (lane >= d) v += left;
        }
        v += carry;
        if (c < cols) out[c] = v;
        carry = __shfl_sync(0xffffffff, v, 31);
    }
}

extern "C" void cumsum_rows(const float* x, float* out, int rows, int cols) { scan_rows<<<rows, 32>>>(x, out, cols); }
