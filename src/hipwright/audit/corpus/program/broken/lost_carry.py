# wrong: each chunk of 64 starts from zero again
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scan(const float* x, float* y, int cols) {
    int lane = threadIdx.x;
    float carry = 0.0f;
    for (int base = 0; base < cols; base += warpSize) {
        int j = base + lane;
        float v = j < cols ? x[(long)blockIdx.x * cols + j] : 0.0f;
        for (int d = 1; d < warpSize; d <<= 1) {
            float left = __shfl_up(v, d);
            if (lane >= d) v += left;
        }
        if (j < cols) y[(long)blockIdx.x * cols + j] = v;
        carry += __shfl(v, warpSize - 1);
    }
}
'''


WAVE = knob(64, choices=[32, 64])


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scan[x.shape[0], WAVE](x, y, x.shape[1])
    return y
