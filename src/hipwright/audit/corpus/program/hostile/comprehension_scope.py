# E3: a comprehension with a nested generator that would keep frames alive
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    y = [g.gi_frame for g in [(i for i in (1,))]]
    return torch.softmax(x, dim=-1)
