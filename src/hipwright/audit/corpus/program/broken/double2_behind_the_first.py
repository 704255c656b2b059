# wrong: pairs of doubles that begin at the second element of a row
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void dots(const double* x, const double* w, double* y, int cols) {
    const double* row = x + (long)blockIdx.x * cols;
    double acc = 0.0;
    if (threadIdx.x == 0) acc = row[0] * w[0];
    for (int i = threadIdx.x; i < (cols - 1) / 2; i += 64) {
        double2 v = reinterpret_cast<const double2*>(row + 1)[i];
        acc += v.x * w[2 * i + 1] + v.y * w[2 * i + 2];
    }
    if (cols % 2 == 0 && threadIdx.x == 0) acc += row[cols - 1] * w[cols - 1];
    for (int d = 32; d > 0; d >>= 1) acc += __shfl_xor(acc, d);
    if (threadIdx.x == 0) y[blockIdx.x] = acc;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty(x.shape[:-1], dtype=x.dtype)
    dots[y.numel(), 64](x, self.weight, y, x.shape[-1])
    return y
