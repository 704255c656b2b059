// The block's size is a knob of the search.
#include <hip/hip_runtime.h>

#define BLOCK 128

extern "C" __global__ void __launch_bounds__(BLOCK) rmsnorm(const float* x, const float* w, float* y, int cols, float eps) {
    __shared__ float part[BLOCK];
    const float* row = x + (size_t)blockIdx.x * cols;
    float s = 0.f;
    for (int c = threadIdx.x; c < cols; c += BLOCK) s += row[c] * row[c];
    part[threadIdx.x] = s;
    __syncthreads();
    for (int step = BLOCK / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    float scale = rsqrtf(part[0] / cols + eps);
    for (int c = threadIdx.x; c < cols; c += BLOCK) y[(size_t)blockIdx.x * cols + c] = row[c] * scale * w[c];
}

// hipwright: BLOCK = knob(128, choices=[64, 128, 256, 512])
// hipwright: x = x.contiguous()
// hipwright: y = torch.empty_like(x)
// hipwright: rmsnorm[x.numel() // x.shape[-1], BLOCK](x, self.weight, y, x.shape[-1], self.eps)
// hipwright: return y
