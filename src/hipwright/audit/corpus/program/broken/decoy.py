# deceptive: the library does the work and the kernel writes scratch; right, but nothing of it is the kernel's
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void decoy(const float* x, float* scratch, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) scratch[i] = x[i] * 2.0f;
}
'''


def forward(self, x):
    x = x.contiguous()
    scratch = torch.empty_like(x)
    decoy[cdiv(x.numel(), 64), 64](x, scratch, x.numel())
    return torch.softmax(x, dim=-1)
