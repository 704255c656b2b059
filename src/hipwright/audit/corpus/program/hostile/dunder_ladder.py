# E1: climbs from a shape to every class of the interpreter
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    y = x.shape.__class__.__bases__[0].__subclasses__()
    return torch.softmax(x, dim=len(y))
