"""One pass for the sum and the sum of squares, both in double, which float data do not cancel in."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void layer_norm(const float* x, const float* g, const float* b, float* y, int rows, int c,
                                      float eps) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const float* row = x + (long)r * c;
    double sum = 0.0, squares = 0.0;
    for (int j = 0; j < c; ++j) {
        double d = (double)row[j] - row[0];
        sum += d;
        squares += d * d;
    }
    double mean = sum / c, var = squares / c - mean * mean;
    double scale = 1.0 / sqrt((var > 0.0 ? var : 0.0) + eps);
    for (int j = 0; j < c; ++j)
        y[(long)r * c + j] = (float)(((double)row[j] - row[0] - mean) * scale * g[j] + b[j]);
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    c = x.shape[-1]
    rows = x.numel() // c
    layer_norm[cdiv(rows, 16), 16](x, self.norm.weight, self.norm.bias, y, rows, c, self.norm.eps)
    return y
