// 4 x 4 outputs a thread in registers, tiles of 64 x 64 in LDS.
#include <hip/hip_runtime.h>

constexpr int TILE = 64, DEPTH = 16, EACH = 4;

__global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    __shared__ float as[DEPTH][TILE], bs[DEPTH][TILE];
    float acc[EACH][EACH] = {};
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            int row = blockIdx.y * TILE + i / DEPTH, at = k0 + i % DEPTH;
            as[i % DEPTH][i / DEPTH] = row < m && at < k ? a[(size_t)row * k + at] : 0.f;
            int col = blockIdx.x * TILE + i % TILE;
            at = k0 + i / TILE;
            bs[i / TILE][i % TILE] = at < k && col < n ? b[(size_t)at * n + col] : 0.f;
        }
        __syncthreads();
        for (int d = 0; d < DEPTH; ++d)
            for (int i = 0; i < EACH; ++i)
                for (int j = 0; j < EACH; ++j) acc[i][j] += as[d][ty * EACH + i] * bs[d][tx * EACH + j];
        __syncthreads();
    }
    for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) {
            int row = blockIdx.y * TILE + ty * EACH + i, col = blockIdx.x * TILE + tx * EACH + j;
            if (row < m && col < n) c[(size_t)row * n + col] = acc[i][j];
        }
}

extern "C" void launch_matmul(const float* a, const float* b, float* c, int m, int n, int k, hipStream_t s) {
    matmul<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), 256, 0, s>>>(a, b, c, m, n, k);
}
