# B2: the kernel rewrites one element of the library's result with itself
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void touch(float* y) { y[0] = y[0]; }
'''


def forward(self, x):
    y = torch.softmax(x, dim=-1).contiguous()
    touch[1, 1](y)
    return y
