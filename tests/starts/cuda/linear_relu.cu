// A product with bias and ReLU as epilogue; four outputs a thread; parameters by their names.
#include <torch/extension.h>

constexpr int BM = 32, BN = 32, BK = 16;

__global__ void linear_relu_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
                                   float* __restrict__ y, int m, int n, int k) {
    __shared__ float xs[BM][BK + 1], ws[BN][BK + 1];
    float acc[4] = {0.f, 0.f, 0.f, 0.f};
    int tx = threadIdx.x % BN, ty = threadIdx.x / BN;
    for (int k0 = 0; k0 < k; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += blockDim.x) {
            int r = i / BK, c = i % BK;
            int gm = blockIdx.y * BM + r, gn = blockIdx.x * BN + r;
            xs[r][c] = gm < m && k0 + c < k ? x[(long)gm * k + k0 + c] : 0.f;
            ws[r][c] = gn < n && k0 + c < k ? w[(long)gn * k + k0 + c] : 0.f;
        }
        __syncthreads();
        for (int c = 0; c < BK; ++c)
            for (int i = 0; i < 4; ++i) acc[i] += xs[ty * 4 + i][c] * ws[tx][c];
        __syncthreads();
    }
    int gn = blockIdx.x * BN + tx;
    for (int i = 0; i < 4; ++i) {
        int gm = blockIdx.y * BM + ty * 4 + i;
        if (gm < m && gn < n) y[(long)gm * n + gn] = fmaxf(acc[i] + b[gn], 0.f);
    }
}

torch::Tensor linear_relu(torch::Tensor x, torch::Tensor fc_weight, torch::Tensor fc_bias) {
    int m = x.size(0), k = x.size(1), n = fc_weight.size(0);
    auto y = torch::empty({m, n}, x.options());
    dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    linear_relu_kernel<<<grid, BM * BN / 4>>>(x.data_ptr<float>(), fc_weight.data_ptr<float>(),
                                             fc_bias.data_ptr<float>(), y.data_ptr<float>(), m, n, k);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("linear_relu", &linear_relu);
}
