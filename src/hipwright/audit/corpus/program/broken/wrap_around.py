# wrong: the difference is cut to a byte before it is clamped
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void clamp_diff(const int* x, const int* y, unsigned char* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int d = x[i] - y[i];
    z[i] = (unsigned char)(d < 0 ? 0 : d);
}
'''


def forward(self, x, y):
    x = x.contiguous()
    y = y.contiguous()
    z = torch.empty(x.shape, dtype=torch.uint8)
    clamp_diff[cdiv(x.numel(), 64), 64](x, y, z, x.numel())
    return z
