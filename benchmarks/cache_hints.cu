// What `stream: keep` (src/hipwright/engine/streaming.py) does to a plain copy, and to what runs behind it. NVIDIA only.
//
//     nvcc -O3 -arch=sm_90 -std=c++17 benchmarks/cache_hints.cu -o cache_hints && ./cache_hints
//
// First: a copy of 256 MiB, its reads as they are, first to leave the L2 cache, last to leave it; over 4 pairs of buffers
// and over 100, where nothing read can be met again. Then: a small copy, eight times behind a large one of each kind.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" __device__ void* __nv_associate_access_property(const void*, unsigned long long);
constexpr unsigned long long FIRST = 0x12F0000000000000ull, LAST = 0x14F0000000000000ull;  // as libcu++ has them
const char* const NAMES[] = {"as they are", "first to leave", "last to leave"};

void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::exit(1);
}

template <int HOW>
__global__ void copy(const float4* __restrict__ x, float4* __restrict__ y) {
    if (HOW) x = static_cast<const float4*>(__nv_associate_access_property(x, HOW == 1 ? FIRST : LAST));
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

void run(int how, const void* x, void* y, long bytes) {
    const float4* from = static_cast<const float4*>(x);
    float4* to = static_cast<float4*>(y);
    const int blocks = (int)(bytes / 16 / 256);
    if (how == 0) copy<0><<<blocks, 256>>>(from, to);
    if (how == 1) copy<1><<<blocks, 256>>>(from, to);
    if (how == 2) copy<2><<<blocks, 256>>>(from, to);
}

float median(std::vector<float> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

void* memory(long bytes) {
    void* p;
    check(cudaMalloc(&p, bytes));
    check(cudaMemset(p, 1, bytes));
    return p;
}

void large(int pairs, long bytes) {
    std::vector<void*> x, y;
    for (int i = 0; i < pairs; ++i) x.push_back(memory(bytes)), y.push_back(memory(bytes));
    cudaEvent_t a, b;
    check(cudaEventCreate(&a)), check(cudaEventCreate(&b));
    std::vector<float> us[3];
    long at = 0;
    for (int round = 0; round < 25; ++round)
        for (int how = 0; how < 3; ++how) {
            run(how, x[at % pairs], y[at % pairs], bytes), ++at;
            check(cudaEventRecord(a));
            for (int i = 0; i < 12; ++i, ++at) run(how, x[at % pairs], y[at % pairs], bytes);
            check(cudaEventRecord(b)), check(cudaDeviceSynchronize());
            float ms;
            check(cudaEventElapsedTime(&ms, a, b));
            us[how].push_back(ms / 12 * 1e3f);
        }
    for (int how = 0; how < 3; ++how)
        std::printf("copy of %ld MiB, %d pairs of buffers, reads %s: %.2f us\n", bytes >> 20, pairs, NAMES[how], median(us[how]));
    for (void* p : x) check(cudaFree(p));
    for (void* p : y) check(cudaFree(p));
}

void behind(long bytes) {
    const long much = 512l << 20;
    void *x = memory(much), *y = memory(much), *a = memory(bytes), *b = memory(bytes);
    cudaEvent_t events[16];
    for (auto& event : events) check(cudaEventCreate(&event));
    for (int how : {0, 1, 0, 2, 0, 2}) {
        std::vector<float> us[8];
        for (int round = 0; round < 41; ++round) {
            run(how, x, y, much);
            for (int i = 0; i < 8; ++i) {
                check(cudaEventRecord(events[2 * i]));
                run(0, a, b, bytes);
                check(cudaEventRecord(events[2 * i + 1]));
            }
            check(cudaDeviceSynchronize());
            for (int i = 0; i < 8; ++i) {
                float ms;
                check(cudaEventElapsedTime(&ms, events[2 * i], events[2 * i + 1]));
                us[i].push_back(ms * 1e3f);
            }
        }
        std::printf("behind a large copy with reads %s, %ld MiB to %ld MiB:", NAMES[how], bytes >> 20, bytes >> 20);
        for (auto& v : us) std::printf(" %.2f", median(v));
        std::printf(" us\n");
    }
    for (void* p : {x, y, a, b}) check(cudaFree(p));
}

int main() {
    large(4, 256l << 20);
    large(100, 256l << 20);
    for (long mib : {8l, 12l, 16l}) behind(mib << 20);
}
