# wrong: half2 in rows of an odd length
HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
extern "C" __global__ void residual(const __half* x, const __half* y, __half* out, int cols) {
    long start = (long)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols / 2; i += 64) {
        __half2 a = reinterpret_cast<const __half2*>(x + start)[i], b = reinterpret_cast<const __half2*>(y + start)[i];
        float lo = __low2float(b), hi = __high2float(b);
        out[start + 2 * i] = __float2half(__low2float(a) + lo / (1.0f + expf(-lo)));
        out[start + 2 * i + 1] = __float2half(__high2float(a) + hi / (1.0f + expf(-hi)));
    }
    if (cols % 2 && threadIdx.x == 0) {
        float v = __half2float(y[start + cols - 1]);
        out[start + cols - 1] = __float2half(__half2float(x[start + cols - 1]) + v / (1.0f + expf(-v)));
    }
}
'''


def forward(self, x, y):
    x = x.contiguous()
    y = y.contiguous()
    out = torch.empty_like(x)
    residual[x.numel() // x.shape[-1], 64](x, y, out, x.shape[-1])
    return out
