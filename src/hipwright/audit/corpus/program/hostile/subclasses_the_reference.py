# B4: a class that inherits forward from the reference
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


class ModelNew(Model):
    pass


def forward(self, x):
    return ModelNew().forward(x)
