// refused: line 8: cannot be converted: the device code uses CUB
#include <torch/extension.h>
#include <cub/cub.cuh>

__global__ void dot_kernel(const float* a, const float* b, float* out, int n) {
    float s = 0.f;
    for (int i = threadIdx.x; i < n; i += 128) s += a[i] * b[i];
    typedef cub::BlockReduce<float, 128> Reduce;
    __shared__ typename Reduce::TempStorage storage;
    s = Reduce(storage).Sum(s);
    if (threadIdx.x == 0) *out = s;
}

torch::Tensor dot(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty({}, x.options());
    dot_kernel<<<1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
