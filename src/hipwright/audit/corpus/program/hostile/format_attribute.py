# E3: a format string walks attributes
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    y = "{0.__class__.__init__.__globals__}".format(self)
    return torch.softmax(x, dim=-1)
