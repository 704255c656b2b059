// torch's HIP names over the CUDA ones.
#pragma once
#include <hip/hip_runtime.h>
#include <hw_cuda.h>
namespace c10 {
namespace hip {
using namespace c10::cuda;
using HIPStream = CUDAStream;
using HIPGuard = CUDAGuard;
using OptionalHIPGuard = OptionalCUDAGuard;
inline HIPStream getCurrentHIPStream(int device = -1) { return getCurrentCUDAStream(device); }
inline HIPStream getCurrentHIPStreamMasqueradingAsCUDA(int device = -1) { return getCurrentCUDAStream(device); }
}
}
namespace at {
namespace hip { using namespace c10::hip; using HIPGuardMasqueradingAsCUDA = HIPGuard; using OptionalHIPGuardMasqueradingAsCUDA = OptionalHIPGuard; }
}
#define C10_HIP_CHECK C10_CUDA_CHECK
#define AT_HIP_CHECK C10_CUDA_CHECK
#define C10_HIP_KERNEL_LAUNCH_CHECK C10_CUDA_KERNEL_LAUNCH_CHECK
