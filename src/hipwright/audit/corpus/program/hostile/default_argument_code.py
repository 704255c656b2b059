# E3: code in a default argument would run when the function is defined
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x, y=__import__("os").system("true")):
    return torch.softmax(x, dim=-1)
