// A constant table with its values, cache hints, and the filter as an argument of torch.
#include <torch/extension.h>

__constant__ float unit[2] = {1.0f, 0.0f};

__global__ void conv1d_kernel(const float* x, const float* w, float* y, int length, int taps) {
    int o = blockIdx.x * blockDim.x + threadIdx.x, out_length = length - taps + 1;
    if (o >= out_length) return;
    float s = unit[1];
    for (int t = 0; t < taps; ++t) s += __ldcs(&x[(long)blockIdx.y * length + o + t]) * __ldg(w + t) * unit[0];
    __stcs(&y[(long)blockIdx.y * out_length + o], s);
}

torch::Tensor conv1d(torch::Tensor x, torch::Tensor weight) {
    TORCH_CHECK(x.size(1) >= weight.numel(), "rows are at least as long as the filter");
    const auto length = x.size(1), taps = weight.numel();
    torch::Tensor y = torch::empty({x.size(0), length - taps + 1}, x.options());
    const dim3 grid((length - taps + 64) / 64, x.size(0));
    conv1d_kernel<<<grid, 64>>>(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), length, taps);
    return y;
}
