// Streams, guards and launch checks of torch, on the CUDA runtime (a HIP source's names come with hip/hip_runtime.h).
#pragma once
#include <hw_torchlite.h>
#if defined(__CUDACC__) || __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#include <cuda_runtime_api.h>

namespace c10 {
namespace cuda {
class CUDAStream {
    cudaStream_t stream_;

public:
    explicit CUDAStream(cudaStream_t s) : stream_(s) {}
    cudaStream_t stream() const { return stream_; }
    operator cudaStream_t() const { return stream_; }
    void synchronize() const { cudaStreamSynchronize(stream_); }
    int device_index() const { return current(); }
    static int current() { int d = 0; cudaGetDevice(&d); return d; }
};
inline CUDAStream getCurrentCUDAStream(int device = -1) { return CUDAStream((cudaStream_t)hw::host()->stream(device)); }
inline CUDAStream getDefaultCUDAStream(int = -1) { return CUDAStream(nullptr); }
inline CUDAStream getStreamFromPool(bool = false, int device = -1) { return getCurrentCUDAStream(device); }
inline int current_device() { return CUDAStream::current(); }
inline void device_synchronize() { cudaDeviceSynchronize(); }
class CUDAGuard {
    int before_ = 0;

public:
    explicit CUDAGuard(int index) { enter(index); }
    explicit CUDAGuard(c10::Device d) { enter(d.index()); }
    CUDAGuard(const CUDAGuard &) = delete;
    ~CUDAGuard() { cudaSetDevice(before_); }
    void enter(int index) { cudaGetDevice(&before_); if (index >= 0 && index != before_) cudaSetDevice(index); }
    void set_index(int index) { if (index >= 0) cudaSetDevice(index); }
};
class OptionalCUDAGuard {
    int before_ = -1;

public:
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(const at::MaybeDevice &d) { if (d.known && d.device.is_cuda()) set_index(d.device.index()); }
    explicit OptionalCUDAGuard(c10::Device d) { if (d.is_cuda()) set_index(d.index()); }
    explicit OptionalCUDAGuard(int index) { set_index(index); }
    OptionalCUDAGuard(const OptionalCUDAGuard &) = delete;
    ~OptionalCUDAGuard() { if (before_ >= 0) cudaSetDevice(before_); }
    void set_index(int index) {
        if (before_ < 0) cudaGetDevice(&before_);
        if (index >= 0 && index != before_) cudaSetDevice(index);
    }
};
inline void check(cudaError_t error, const char *file, int line) {
    if (error != cudaSuccess) hw::fail(hw::words("CUDA error: ", cudaGetErrorString(error), " (", file, ":", line, ")"));
}
} // namespace cuda
using DeviceGuard = cuda::CUDAGuard;
using OptionalDeviceGuard = cuda::OptionalCUDAGuard;
} // namespace c10
namespace at {
using DeviceGuard = c10::cuda::CUDAGuard;
using OptionalDeviceGuard = c10::cuda::OptionalCUDAGuard;
namespace cuda {
using namespace c10::cuda;
inline cudaDeviceProp *getCurrentDeviceProperties() {
    static cudaDeviceProp p;
    static bool known = (cudaGetDeviceProperties(&p, CUDAStream::current()), true);
    (void)known;
    return &p;
}
inline cudaDeviceProp *getDeviceProperties(int) { return getCurrentDeviceProperties(); }
template <class T> HW_BOTH T ATenCeilDiv(T a, T b) { return (a + b - 1) / b; }
}
template <class T> HW_BOTH T ceil_div(T a, T b) { return (a + b - 1) / b; }
} // namespace at
namespace torch { namespace cuda { using at::cuda::getCurrentCUDAStream; } }
#define C10_CUDA_CHECK(expression) c10::cuda::check((expression), __FILE__, __LINE__)
#define AT_CUDA_CHECK C10_CUDA_CHECK
#define TORCH_CUDA_CHECK C10_CUDA_CHECK
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK C10_CUDA_KERNEL_LAUNCH_CHECK
#define CUDA_KERNEL_LOOP(i, n) for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < (n); i += (int64_t)blockDim.x * gridDim.x)
#endif
