"""One block per index, threads along the row."""

HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void embed(const long* index, const float* table, float* y, int width) {
    long row = index[blockIdx.x];
    for (int j = threadIdx.x; j < width; j += blockDim.x) y[(long)blockIdx.x * width + j] = 2.0f * table[row * width + j];
}
'''


def forward(self, index):
    index = index.contiguous()
    width = self.table.weight.shape[1]
    y = torch.empty((*index.shape, width), dtype=self.table.weight.dtype)
    embed[index.numel(), 64](index, self.table.weight, y, width)
    return y
