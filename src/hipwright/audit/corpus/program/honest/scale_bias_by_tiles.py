# four neighbouring elements a thread, by the device headers; a row's tail is shorter
HIP = r'''
#include <hip/hip_runtime.h>
#include <hipwright/arithmetic.h>
#include <hipwright/tile.h>
extern "C" __global__ void scale(const float* x, const float* gamma, const float* bias, float* y, int width) {
    const float* row = x + (long)blockIdx.x * width;
    float* out = y + (long)blockIdx.x * width;
    for (int base = threadIdx.x * 4; base < width; base += 64 * 4) {
        Tile<float, 4> tile = load_tile<1, 4>(row, base, 4, width);
        for (int k = 0; k < 4; ++k)
            if (base + k < width) tile.v[k] = relu(tile.v[k] * gamma[base + k] + bias[base + k]);
        store_tile<1, 4>(out, base, 4, width, tile);
    }
}
'''


def forward(self, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale[x.numel() // x.shape[-1], 64](x, self.gamma, self.bias, y, x.shape[-1])
    return y
