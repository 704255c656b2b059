# wrong: pairs that begin at the second element of a row
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, const float* b, float* y, int cols) {
    const float* row = x + (long)blockIdx.x * cols;
    float* out = y + (long)blockIdx.x * cols;
    if (threadIdx.x == 0) out[0] = row[0] * w[0] + b[0];
    for (int i = threadIdx.x; i < (cols - 1) / 2; i += 64) {
        float2 v = reinterpret_cast<const float2*>(row + 1)[i];
        out[2 * i + 1] = v.x * w[2 * i + 1] + b[2 * i + 1];
        out[2 * i + 2] = v.y * w[2 * i + 2] + b[2 * i + 2];
    }
    if ((cols - 1) % 2 && threadIdx.x == 0) out[cols - 1] = row[cols - 1] * w[cols - 1] + b[cols - 1];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[x.numel() // x.shape[-1], 64](x, self.w, self.b, y, x.shape[-1])
    return y
