# E3: a decorator would run when the file is read
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


@exec("import os")
def forward(self, x):
    return torch.softmax(x, dim=-1)
