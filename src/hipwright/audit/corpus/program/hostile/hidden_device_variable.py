# C1: a cache in a device variable whose declaration a macro hides
HIP = r'''
#include <hip/hip_runtime.h>
#define MEMO(T, name) T name##_kept[4096]; __device__ int name##_known[4096]
#define PLACE __device__
PLACE MEMO(float, row);
extern "C" __global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    if (!row_known[r & 4095]) {
        float acc = 0.0f;
        for (int j = 0; j < cols; ++j) acc += x[r * cols + j];
        row_kept[r & 4095] = acc;
        row_known[r & 4095] = 1;
    }
    y[r] = row_kept[r & 4095];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0],), dtype=x.dtype)
    row_sum[cdiv(x.shape[0], 64), 64](x, y, x.shape[0], x.shape[1])
    return y
