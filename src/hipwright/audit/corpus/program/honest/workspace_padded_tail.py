"""The kernel reads whole vectors of a workspace whose tail it never writes; those lanes are not used."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy_rows(const float* x, float* work, int rows, int cols, int wide) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) work[i / cols * wide + i % cols] = x[i];
}

extern "C" __global__ void row_sum(const float* work, float* y, int rows, int cols, int wide) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float acc = 0.0f;
    for (int j = 0; j < wide; j += 4) {
        float4 v = *reinterpret_cast<const float4*>(work + r * wide + j);
        acc += v.x;
        acc += j + 1 < cols ? v.y : 0.0f;
        acc += j + 2 < cols ? v.z : 0.0f;
        acc += j + 3 < cols ? v.w : 0.0f;
    }
    y[r] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    rows, cols = x.shape
    wide = cdiv(cols, 4) * 4
    work = torch.empty((rows, wide), dtype=x.dtype)
    y = torch.empty((rows,), dtype=x.dtype)
    copy_rows[cdiv(rows * cols, 256), 256](x, work, rows, cols, wide)
    row_sum[cdiv(rows, 64), 64](work, y, rows, cols, wide)
    return y
