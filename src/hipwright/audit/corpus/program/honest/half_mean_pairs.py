"""Pairs of halves where the row begins on four bytes, sums in float."""

HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
extern "C" __global__ void mean(const __half* x, __half* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const __half* row = x + (long)r * cols;
    int head = min(cols, (int)((size_t)row / 2 % 2));
    float acc = head ? __half2float(row[0]) : 0.0f;
    int pairs = (cols - head) / 2;
    for (int i = 0; i < pairs; ++i) {
        float2 v = __half22float2(reinterpret_cast<const __half2*>(row + head)[i]);
        acc += v.x + v.y;
    }
    if (head + 2 * pairs < cols) acc += __half2float(row[cols - 1]);
    y[r] = __float2half(acc / cols);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    mean[cdiv(x.shape[0], 32), 32](x, y, x.shape[0], x.shape[1])
    return y
