# wrong: no epsilon: rows of zeros give NaN
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void unit_rows(const float* x, float* y, int cols) {
    __shared__ float part[64];
    int t = threadIdx.x;
    const float* row = x + (long)blockIdx.x * cols;
    float acc = 0.0f;
    for (int j = t; j < cols; j += 64) acc += row[j] * row[j];
    part[t] = acc;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    float norm = sqrtf(part[0]);
    for (int j = t; j < cols; j += 64) y[(long)blockIdx.x * cols + j] = row[j] / norm;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0], x.shape[1]), dtype=x.dtype)
    unit_rows[x.shape[0], 64](x, y, x.shape[1])
    return y
