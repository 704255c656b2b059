# wrong: the first call's result is kept and handed out again
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void linear(const float* x, const float* w, const float* b, float* kept, int* filled, float* y,
                                  int m, int n, int k) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    int at = row * n + col;
    if (!filled[at]) {
        float acc = 0.0f;
        for (int p = 0; p < k; ++p) acc += x[row * k + p] * w[col * k + p];
        kept[at] = acc + b[col];
        filled[at] = 1;
    }
    y[at] = kept[at];
}
'''


def prepare(self):
    n = self.proj.weight.shape[0]
    return {"kept": torch.zeros((256, n)), "filled": torch.zeros((256, n), dtype=torch.int32)}


def forward(self, x):
    x = x.contiguous()
    m, k = x.shape
    n = self.proj.weight.shape[0]
    assert m <= 256
    y = torch.empty((m, n), dtype=x.dtype)
    linear[(cdiv(n, 64), m), 64](
        x, self.proj.weight, self.proj.bias, self.prepared.kept, self.prepared.filled, y, m, n, k
    )
    return y
