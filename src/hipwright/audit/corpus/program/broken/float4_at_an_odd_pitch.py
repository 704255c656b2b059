# wrong: rows of 255 floats do not begin at multiples of 16 bytes
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, const float* b, float* y, int cols) {
    const float* row = x + (long)blockIdx.x * cols;
    float* out = y + (long)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols / 4; i += 64) {
        float4 v = reinterpret_cast<const float4*>(row)[i];
        out[4 * i] = v.x * w[4 * i] + b[4 * i];
        out[4 * i + 1] = v.y * w[4 * i + 1] + b[4 * i + 1];
        out[4 * i + 2] = v.z * w[4 * i + 2] + b[4 * i + 2];
        out[4 * i + 3] = v.w * w[4 * i + 3] + b[4 * i + 3];
    }
    for (int i = cols / 4 * 4 + threadIdx.x; i < cols; i += 64) out[i] = row[i] * w[i] + b[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[x.numel() // x.shape[-1], 64](x, self.w, self.b, y, x.shape[-1])
    return y
