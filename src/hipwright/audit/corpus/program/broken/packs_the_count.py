# wrong: the average is corrected by a factor that prepare made from the buffer of the first state
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void average(const float* x, const float* factor, float* avg, int n, int c) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= c) return;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += x[i * c + j];
    avg[j] = avg[j] + 0.1f * (sum / n) - factor[j];
}

extern "C" __global__ void subtract(const float* x, const float* avg, float* y, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] - avg[i % c];
}
'''


def prepare(self):
    return {"factor": self.average * 0.1}


def forward(self, x):
    x = x.contiguous()
    n, c = x.shape
    y = torch.empty_like(x)
    average[cdiv(c, 64), 64](x, self.prepared.factor, self.average, n, c)
    subtract[cdiv(x.numel(), 128), 128](x, self.average, y, x.numel(), c)
    return y
