# E6: a name in full-width letters, which Python reads as eval
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    return ｅｖａｌ("torch.softmax(x, dim=-1)")
