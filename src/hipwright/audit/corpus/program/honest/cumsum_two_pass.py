"""A block scans strips of its row in LDS (Hillis and Steele), with two buffers, and carries the sum on."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void scan(const float* x, float* y, int cols) {
    __shared__ float lds[2][64];
    int t = threadIdx.x;
    float carry = 0.0f;
    for (int base = 0; base < cols; base += 64) {
        int j = base + t, now = 0;
        lds[0][t] = j < cols ? x[(long)blockIdx.x * cols + j] : 0.0f;
        __syncthreads();
        for (int d = 1; d < 64; d <<= 1) {
            lds[1 - now][t] = t >= d ? lds[now][t] + lds[now][t - d] : lds[now][t];
            now = 1 - now;
            __syncthreads();
        }
        if (j < cols) y[(long)blockIdx.x * cols + j] = carry + lds[now][t];
        carry += lds[now][63];
        __syncthreads();
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scan[x.shape[0], 64](x, y, x.shape[1])
    return y
