# wrong: a float16 task is answered in float32
HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
extern "C" __global__ void residual(const __half* x, const __half* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = __half2float(y[i]);
    z[i] = __half2float(x[i]) + v / (1.0f + expf(-v));
}
'''


def forward(self, x, y):
    x = x.contiguous()
    y = y.contiguous()
    z = torch.empty(x.shape, dtype=torch.float32)
    residual[cdiv(x.numel(), 256), 256](x, y, z, x.numel())
    return z
