"""A dict with a pair in it, from one kernel."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void parts(const float* x, float* mean, float* centred, float* top, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + (long)r * cols;
    float sum = 0.0f, most = 0.0f;
    for (int j = 0; j < cols; ++j) { sum += row[j]; most = fmaxf(most, fabsf(row[j])); }
    float m = sum / cols;
    for (int j = 0; j < cols; ++j) centred[(long)r * cols + j] = row[j] - m;
    mean[r] = m;
    top[r] = most;
}
'''


def forward(self, x):
    x = x.contiguous()
    rows, cols = x.shape
    mean = torch.empty((rows,), dtype=x.dtype)
    centred = torch.empty_like(x)
    top = torch.empty((rows,), dtype=x.dtype)
    parts[cdiv(rows, 64), 64](x, mean, centred, top, rows, cols)
    return {"mean": mean, "rest": (centred, top)}
