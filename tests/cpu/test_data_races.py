# ruff: noqa: E501 - small kernels read best in one line
"""Data races are reported with evidence in every order; legitimate cooperation is not."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError

BOTH = pytest.mark.parametrize("checked", [False, True])
ORDERS = ["forward", "reverse", "shuffle"]


def failure(call) -> CandidateError:
    with pytest.raises(CandidateError) as caught:
        call()
    return caught.value


RACES = r"""
extern "C" __global__ void no_barrier(const float* x, float* y) {
    __shared__ float s[128];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void second_barrier_missing(float* y) {
    __shared__ float s[128];
    for (int i = 0; i < 3; i++) {
        s[threadIdx.x] = i;
        __syncthreads();
        y[threadIdx.x] += s[127 - threadIdx.x];
    }
}
extern "C" __global__ void plain_sum(float* y) { y[0] += 1.0f; }
extern "C" __global__ void overlap(float* y) { y[blockIdx.x * 63 + threadIdx.x] = 1.0f; }
extern "C" __global__ void halo(float* y) { int i = blockIdx.x * blockDim.x + threadIdx.x; float l = i ? y[i - 1] : 0; y[i] = l + 1; }
extern "C" __global__ void mixed_atomic(int* y) { if (threadIdx.x == 0) y[0] = 1; else atomicAdd(y, 1); }
"""


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "where"),
    [
        ("no_barrier", 1, 128, "LDS"),
        ("second_barrier_missing", 1, 128, "LDS"),
        ("plain_sum", 1, 2, "y"),
        ("plain_sum", 2, 1, "y"),
        ("overlap", 2, 64, "y"),
        ("halo", 2, 64, "y"),
        ("mixed_atomic", 1, 128, "y"),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_races_are_found_in_every_order(gpu, kernel: str, grid: int, block: int, where: str, order: str) -> None:
    y = torch.zeros(128, dtype=torch.int32 if kernel == "mixed_atomic" else torch.float32)
    args = [torch.randn(128), y] if kernel == "no_barrier" else [y]
    error = failure(lambda: gpu.run(RACES, kernel, grid, block, args, checked=True, order=order, seed=4))
    assert error.status == "nondeterministic"
    assert where in (error.evidence.get("buffer"), error.evidence.get("argument"))
    here = (error.evidence["block"], error.evidence["thread"])
    other = error.evidence["other"]
    assert here != (other["block"], other["thread"])
    assert error.evidence["line"] > 0
    assert other["line"] > 0
    assert "write" in error.evidence["kind"] + other["kind"]


LEGITIMATE = r"""
extern "C" __global__ void last_block(const float* x, float* partial, int* count, float* y, int n) {
    __shared__ float s[64];
    __shared__ bool last;
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 64 + t];
    __syncthreads();
    for (int o = 32; o; o >>= 1) { if (t < o) s[t] += s[t + o]; __syncthreads(); }
    if (t == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(count, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        float v = 0;
        for (int i = t; i < (int)gridDim.x; i += 64) v += partial[i];
        for (int o = 32; o; o >>= 1) v += __shfl_xor(v, o);
        if (t == 0) y[0] = v;
    }
}
extern "C" __global__ void look_back(const float* x, float* y, int* ticket, int* flag, float* sums) {
    __shared__ int block;
    __shared__ float before;
    if (threadIdx.x == 0) block = atomicAdd(ticket, 1);
    __syncthreads();
    int b = block, i = b * 64 + threadIdx.x;
    float v = x[i];
    for (int o = 1; o < 64; o <<= 1) { float u = __shfl_up(v, o); if ((int)threadIdx.x >= o) v += u; }
    if (threadIdx.x == 63) {
        float sum = 0;
        if (b) { while (__hip_atomic_load(flag + b - 1, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {} sum = sums[b - 1]; }
        before = sum;
        sums[b] = sum + v;
        __hip_atomic_store(flag + b, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }
    __syncthreads();
    y[i] = v + before;
}
extern "C" __global__ void grid_barrier(float* y, int* arrived) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    y[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < (int)gridDim.x) {}
    }
    __syncthreads();
    float v = y[n - 1 - i];
    __syncthreads();
    y[n + i] = v;
}
extern "C" __global__ void pipeline(const unsigned char* x, unsigned char* y) {
    __shared__ unsigned char a[2][64];
    a[0][threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int i = 0; i < 4; i++) {
        a[1 - i % 2][threadIdx.x] = a[i % 2][(threadIdx.x + 1) % 64];
        __syncthreads();
    }
    y[threadIdx.x] = a[0][threadIdx.x];
}
extern "C" __global__ void flag_from_another_block(int* flag, int* y) {
    if (blockIdx.x == 0) { while (atomicAdd(flag, 0) == 0) {} y[0] = 7; } else atomicExch(flag, 1);
}
"""


@BOTH
@pytest.mark.parametrize("order", ORDERS)
def test_legitimate_cooperation_is_not_a_race(gpu, order: str, checked: bool) -> None:
    launcher = gpu.load(LEGITIMATE, checked=checked, order=order, seed=9)
    x = torch.randint(-8, 8, (20 * 64,)).float()
    y = torch.zeros(1)
    launcher.launch(
        "last_block", (20, 1, 1), (64, 1, 1), 0, [x, torch.zeros(20), torch.zeros(1, dtype=torch.int32), y, 20]
    )
    assert y.item() == x.sum().item()
    scan = torch.zeros(20 * 64)
    args = [x, scan, torch.zeros(1, dtype=torch.int32), torch.zeros(20, dtype=torch.int32), torch.zeros(20)]
    launcher.launch("look_back", (20, 1, 1), (64, 1, 1), 0, args)
    assert torch.equal(scan, x.cumsum(0))
    both = torch.zeros(2 * 6 * 64)
    launcher.launch("grid_barrier", (6, 1, 1), (64, 1, 1), 0, [both, torch.zeros(1, dtype=torch.int32)])
    assert torch.equal(both[384:], torch.arange(384.0).flip(0))
    small, out = torch.randint(0, 255, (64,), dtype=torch.uint8), torch.zeros(64, dtype=torch.uint8)
    launcher.launch("pipeline", (1, 1, 1), (64, 1, 1), 0, [small, out])
    assert torch.equal(out, small.roll(-4))
    flag, seven = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    launcher.launch("flag_from_another_block", (2, 1, 1), (1, 1, 1), 0, [flag, seven])
    assert seven.item() == 7


def test_what_the_checked_build_counts(gpu) -> None:
    source = r"""extern "C" __global__ void k(const float4* x, float4* y) {
        __shared__ float4 s[64];
        s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); y[threadIdx.x] = s[63 - threadIdx.x];
    }"""
    x, y = torch.randn(64, 4), torch.zeros(64, 4)
    stats = gpu.run(source, "k", 1, 64, [x, y], checked=True).stats()[0]
    assert (stats["read_bytes"], stats["write_bytes"], stats["lds_bytes_moved"]) == (1024, 1024, 2048)
    assert (stats["barriers"], stats["wave_ops"], stats["regions_without_race_check"]) == (1, 0, 0)
    assert torch.equal(y, x.flip(0))


def test_two_bytes_of_one_element_by_two_threads_are_no_race(gpu) -> None:
    source = r"""extern "C" __global__ void k(unsigned char* y) { y[threadIdx.x] = threadIdx.x; }"""
    y = torch.zeros(16, dtype=torch.int32)
    gpu.run(source, "k", 1, 64, [y], checked=True)
    assert y.view(torch.uint8).tolist() == list(range(64))
