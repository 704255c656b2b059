"""Ignored rows neither add nor count."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void mean(const float* x, const long* target, float* y, int c, int n) {
    double total = 0.0;
    int count = 0;
    for (int r = 0; r < n; ++r) {
        const float* row = x + (long)r * c;
        float top = -INFINITY, sum = 0.0f;
        for (int j = 0; j < c; ++j) top = fmaxf(top, row[j]);
        for (int j = 0; j < c; ++j) sum += expf(row[j] - top);
        long t = target[r];
        if (t == -1) continue; ++count; total += logf(sum) + top - row[t];
    }
    y[0] = (float)(total / count);
}
'''


def forward(self, x, target):
    x = x.contiguous()
    target = target.contiguous()
    y = torch.empty((), dtype=x.dtype)
    mean[1, 1](x, target, y, x.shape[1], x.shape[0])
    return y
