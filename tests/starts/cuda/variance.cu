// Welford's running mean and variance, merged between lanes.
#include <torch/extension.h>

struct Moments { float mean, m2, count; };

__device__ Moments merged(Moments a, Moments b) {
    float count = a.count + b.count;
    if (count == 0.f) return a;
    float delta = b.mean - a.mean;
    return {a.mean + delta * b.count / count, a.m2 + b.m2 + delta * delta * a.count * b.count / count, count};
}

__global__ void variance_kernel(const float* x, float* out, int cols) {
    const float* row = x + (long)blockIdx.x * cols;
    Moments m = {0.f, 0.f, 0.f};
    for (int c = threadIdx.x; c < cols; c += 32) {
        m.count += 1.f;
        float delta = row[c] - m.mean;
        m.mean += delta / m.count;
        m.m2 += delta * (row[c] - m.mean);
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        Moments other;
        other.mean = __shfl_down_sync(0xffffffff, m.mean, offset);
        other.m2 = __shfl_down_sync(0xffffffff, m.m2, offset);
        other.count = __shfl_down_sync(0xffffffff, m.count, offset);
        m = merged(m, other);
    }
    if (threadIdx.x == 0) out[blockIdx.x] = m.m2 / cols;
}

torch::Tensor variance(torch::Tensor x) {
    int cols = x.size(1);
    auto out = torch::empty({x.size(0)}, torch::dtype(torch::kFloat32).device(x.device()));
    variance_kernel<<<x.size(0), 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), cols);
    return out;
}
