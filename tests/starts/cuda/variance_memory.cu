// A program for host pointers: device memory of its own, copies there and back, a macro that checks every call.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

#define CUDA_OK(call)                                                              \
    do {                                                                           \
        cudaError_t status = (call);                                               \
        if (status != cudaSuccess) {                                               \
            fprintf(stderr, "%s failed\n", #call);                                 \
            exit(EXIT_FAILURE);                                                    \
        }                                                                          \
    } while (0)

__global__ void row_mean(const float* x, float* mean, int cols) {
    if (threadIdx.x == 0) {
        float s = 0.f;
        for (int c = 0; c < cols; ++c) s += x[(size_t)blockIdx.x * cols + c];
        mean[blockIdx.x] = s / cols;
    }
}

__global__ void row_variance(const float* x, const float* mean, float* out, int cols) {
    float m = mean[blockIdx.x], s = 0.f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        float d = x[(size_t)blockIdx.x * cols + c] - m;
        s += d * d;
    }
    atomicAdd(&out[blockIdx.x], s / cols);
}

void variance(const float* h_x, float* h_out, int rows, int cols) {
    float *d_x, *d_mean, *d_out;
    CUDA_OK(cudaMalloc(&d_x, rows * cols * sizeof(float)));
    CUDA_OK(cudaMalloc((void**)&d_mean, rows * sizeof(float)));
    CUDA_OK(cudaMalloc(&d_out, rows * sizeof(float)));
    CUDA_OK(cudaMemcpy(d_x, h_x, rows * cols * sizeof(float), cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemset(d_out, 0, rows * sizeof(float)));
    row_mean<<<rows, 32>>>(d_x, d_mean, cols);
    row_variance<<<rows, 64>>>(d_x, d_mean, d_out, cols);
    CUDA_OK(cudaGetLastError());
    CUDA_OK(cudaMemcpy(h_out, d_out, rows * sizeof(float), cudaMemcpyDeviceToHost));
    CUDA_OK(cudaFree(d_x));
    CUDA_OK(cudaFree(d_mean));
    CUDA_OK(cudaFree(d_out));
}

// hipwright: x = x.contiguous()
// hipwright: out = torch.empty(x.shape[0], dtype=x.dtype)
// hipwright: variance(x, out, x.shape[0], x.shape[1])
// hipwright: return out
