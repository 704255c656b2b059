// refused: line 7: cannot be converted: the device code uses inline assembly
#include <cuda_fp16.h>

__global__ void add_kernel(const unsigned* a, const unsigned* b, unsigned* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        asm("add.f16x2 %0, %1, %2;" : "=r"(c[i]) : "r"(a[i]), "r"(b[i]));
    }
}

void half_add(const unsigned* x, const unsigned* y, unsigned* out, int n) { add_kernel<<<(n + 255) / 256, 256>>>(x, y, out, n); }
