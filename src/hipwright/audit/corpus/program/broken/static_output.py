# wrong: every call writes the same buffer, so the second call changes the first one's result
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void linear(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    float acc = 0.0f;
    for (int p = 0; p < k; ++p) acc += x[row * k + p] * w[col * k + p];
    y[row * n + col] = acc + b[col];
}
'''


def prepare(self):
    return {"out": torch.empty((256, self.proj.weight.shape[0]))}


def forward(self, x):
    x = x.contiguous()
    m, k = x.shape
    n = self.proj.weight.shape[0]
    assert m <= 256
    linear[(cdiv(n, 64), m), 64](x, self.proj.weight, self.proj.bias, self.prepared.out, m, n, k)
    return self.prepared.out[:m]
