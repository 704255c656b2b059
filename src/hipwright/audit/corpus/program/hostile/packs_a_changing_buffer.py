# C1: prepare packs a buffer that a kernel changes; from the second call on the packed value is stale
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void subtract(const float* x, const float* old, float* avg, float* y, int n, int c) {
    int j = blockIdx.x * 64 + threadIdx.x;
    if (j >= c) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[(long)i * c + j];
    float now = old[j] + 0.1f * (sum / n);
    avg[j] = now;
    for (int i = 0; i < n; ++i) y[(long)i * c + j] = x[(long)i * c + j] - now;
}
'''


def prepare(self):
    return {"old": self.average * 0.9}


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    subtract[cdiv(x.shape[1], 64), 64](x, self.prepared.old, self.average, y, x.shape[0], x.shape[1])
    return y
