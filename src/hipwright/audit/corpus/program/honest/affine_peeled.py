"""The head of a row up to a multiple of 16 bytes, vectors, and the tail."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, const float* w, const float* b, float* y, int cols) {
    const float* row = x + (long)blockIdx.x * cols;
    float* out = y + (long)blockIdx.x * cols;
    int head = (int)((16 - ((unsigned long long)row & 15)) / 4 % 4);
    head = head < cols ? head : cols;
    const int vectors = (cols - head) / 4;
    for (int i = threadIdx.x; i < head; i += 64) out[i] = row[i] * w[i] + b[i];
    for (int i = threadIdx.x; i < vectors; i += 64) {
        float4 v = reinterpret_cast<const float4*>(row + head)[i];
        int j = head + 4 * i;
        out[j] = v.x * w[j] + b[j];
        out[j + 1] = v.y * w[j + 1] + b[j + 1];
        out[j + 2] = v.z * w[j + 2] + b[j + 2];
        out[j + 3] = v.w * w[j + 3] + b[j + 3];
    }
    for (int i = head + 4 * vectors + threadIdx.x; i < cols; i += 64) out[i] = row[i] * w[i] + b[i];
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[x.numel() // x.shape[-1], 64](x, self.w, self.b, y, x.shape[-1])
    return y
