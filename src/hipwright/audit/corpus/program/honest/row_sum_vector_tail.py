"""float4 where the row begins on 16 bytes, single elements before and after."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void row_sum(const float* x, float* y, int cols) {
    __shared__ float part[64];
    const float* row = x + (long)blockIdx.x * cols;
    int t = threadIdx.x;
    int head = min(cols, (int)((4 - ((size_t)row / sizeof(float)) % 4) % 4)), quads = (cols - head) / 4;
    float acc = 0.0f;
    if (t < head) acc += row[t];
    const float4* wide = reinterpret_cast<const float4*>(row + head);
    for (int i = t; i < quads; i += 64) {
        float4 v = wide[i];
        acc += v.x + v.y + (v.z + v.w);
    }
    for (int j = head + 4 * quads + t; j < cols; j += 64) acc += row[j];
    part[t] = acc;
    __syncthreads();
    for (int d = 32; d > 0; d >>= 1) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[x.shape[0], 64](x, y, x.shape[1])
    return y
