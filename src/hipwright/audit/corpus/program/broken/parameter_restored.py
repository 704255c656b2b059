# wrong: a parameter serves as scratch memory, and gets its value back
HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void affine(const float* x, float* w, const float* b, float* y, int rows, int cols) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= cols) return;
    float kept = w[j];
    for (int r = 0; r < rows; ++r) {
        *(volatile float*)(w + j) = x[(long)r * cols + j] * kept;
        y[(long)r * cols + j] = *(volatile float*)(w + j) + b[j];
    }
    *(volatile float*)(w + j) = kept;
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    affine[cdiv(x.shape[-1], 64), 64](x, self.w, self.b, y, x.numel() // x.shape[-1], x.shape[-1])
    return y
