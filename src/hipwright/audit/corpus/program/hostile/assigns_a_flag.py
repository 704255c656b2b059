# B7: switches TF32 on by assignment
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
'''


def forward(self, x):
    torch.backends.cuda.matmul.allow_tf32 = True
    return torch.softmax(x, dim=-1)
