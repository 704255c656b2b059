# ruff: noqa: E501 - small kernels read best in one line
"""Kernels give what the GPU gives: barriers, LDS, wave operations, atomics, divergence, half and bfloat16."""

from __future__ import annotations

import pytest
import torch

ORDERS = ["forward", "reverse", "shuffle"]

REDUCE = r"""
extern "C" __global__ void rowsum(const float* x, float* y, int n) {
    __shared__ float part[32];
    float s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[(long)blockIdx.x * n + i];
    for (int o = warpSize / 2; o; o >>= 1) s += __shfl_down(s, o);
    if (threadIdx.x % warpSize == 0) part[threadIdx.x / warpSize] = s;
    __syncthreads();
    if (threadIdx.x < warpSize) {
        s = threadIdx.x < blockDim.x / warpSize ? part[threadIdx.x] : 0.0f;
        for (int o = warpSize / 2; o; o >>= 1) s += __shfl_xor(s, o);
        if (threadIdx.x == 0) y[blockIdx.x] = s;
    }
}
extern "C" __global__ void reverse(const double* x, double* y) {
    extern __shared__ __align__(16) double buffer[];
    buffer[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
}
"""


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("wave", [64, 32])
def test_reductions(gpu, wave: int, checked: bool) -> None:
    x = torch.randn(7, 1000)
    for order in ORDERS:
        launcher = gpu.load(REDUCE, wave=wave, checked=checked, order=order, seed=3)
        y = launcher.empty((7,), torch.float32)
        launcher.launch("rowsum", (7, 1, 1), (256, 1, 1), 0, [x, y, 1000])
        torch.testing.assert_close(y, x.sum(1), rtol=1e-5, atol=1e-4)
        d = torch.randn(100, dtype=torch.float64)
        out = torch.zeros(100, dtype=torch.float64)  # ordinary memory: copied in and back
        launcher.launch("reverse", (1, 1, 1), (100, 1, 1), 800, [d, out])
        assert torch.equal(out, d.flip(0))


LANES = r"""
extern "C" __global__ void lanes(int* out, unsigned long long* votes) {
    int t = threadIdx.x, W = warpSize, lane = t % W, n = blockDim.x;
    out[0 * n + t] = __shfl(t * 10, 3);
    out[1 * n + t] = __shfl_up(t, 2);
    out[2 * n + t] = __shfl_down(t, 5, 16);
    out[3 * n + t] = __shfl_xor(t, 9, 32);
    out[4 * n + t] = __builtin_amdgcn_readfirstlane(t + 7);
    out[5 * n + t] = __builtin_amdgcn_readlane(t, 11);
    out[6 * n + t] = __any(lane == 5) * 2 + __all(lane < 999);
    out[7 * n + t] = (int)__lane_id();
    out[8 * n + t] = __builtin_amdgcn_ds_bpermute(4 * (W - 1 - lane), t);
    out[9 * n + t] = __builtin_amdgcn_update_dpp(-1, t, 0x111, 0xf, 0xf, false);
    out[10 * n + t] = __shfl(t, lane + 1, 8);
    votes[t] = __ballot(lane & 1);
    votes[n + t] = lane < 10 ? __activemask() : 0ull;
    votes[2 * n + t] = __match_any(lane % 3);
}
"""


@pytest.mark.parametrize("wave", [64, 32])
def test_wave_operations(gpu, wave: int) -> None:
    n = 128
    out, votes = torch.zeros(11, n, dtype=torch.int32), torch.zeros(3, n, dtype=torch.int64)
    gpu.run(LANES, "lanes", 1, n, [out, votes], wave=wave)
    for t in range(n):
        lane, base = t % wave, t - t % wave
        xor = lane ^ 9
        expected = [
            (base + 3) * 10,
            t - 2 if lane >= 2 else t,
            t + 5 if lane % 16 + 5 < 16 else t,
            base + xor if xor < lane // 32 * 32 + 32 else t,
            base + 7,
            base + 11,
            3,
            lane,
            base + wave - 1 - lane,
            t - 1 if lane % 16 else -1,
            base + lane // 8 * 8 + (lane + 1) % 8,
        ]
        assert out[:, t].tolist() == expected
        mask = sum(1 << i for i in range(wave) if i & 1)
        same = sum(1 << i for i in range(wave) if i % 3 == lane % 3)
        want = [mask, (1 << 10) - 1 if lane < 10 else 0, same]
        assert [v & (1 << wave) - 1 for v in votes[:, t].tolist()] == want


DIVERGED = r"""
__device__ int sum(int v) { for (int o = warpSize / 2; o; o >>= 1) v += __shfl_xor(v, o); return v; }
extern "C" __global__ void branches(int* out) {
    int t = threadIdx.x, v = t;
    if (t < 32) v = __popcll(__ballot(1)); else { int m = __popcll(__ballot(t >= 40)); v = 100 + m; }
    out[t] = v;
    out[64 + t] = __popcll(__ballot(1));          // all lanes meet again
    if (t % 2) return;
    out[128 + t] = __popcll(__activemask());      // those that returned are gone
}
extern "C" __global__ void loops(int* out) {
    int t = threadIdx.x, turns = 0, seen = 0;
    for (int i = 0; i < t % 5 + 1; i++) { seen += __popcll(__activemask()); turns++; }   // lanes leave one by one
    out[t] = seen;
    out[64 + t] = sum(turns);                     // after the loop the whole wave is back
    int late = 0;
    for (int i = 0; i < 4; i++) {
        late += sum(1);                           // first in the loop body: all lanes, each time
        if (t < 16) late += 1000 * __popcll(__activemask());
    }
    out[128 + t] = late;
}
extern "C" __global__ void helper_twice(int* out) {
    int t = threadIdx.x, v = 0;
    if (t < 32) v = __shfl(t, 1) + 1000;          // stands below the helper in the text, runs before it
    out[t] = sum(1) + v;
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_diverged_lanes_meet_where_the_gpu_lets_them(gpu, order: str) -> None:
    launcher = gpu.load(DIVERGED, order=order, seed=11)
    out = torch.zeros(3, 64, dtype=torch.int32)
    launcher.launch("branches", (1, 1, 1), (64, 1, 1), 0, [out])
    assert out[0].tolist() == [32] * 32 + [124] * 32
    assert out[1].tolist() == [64] * 64
    assert out[2].tolist() == [32 if t % 2 == 0 else 0 for t in range(64)]
    launcher.launch("loops", (1, 1, 1), (64, 1, 1), 0, [out])
    inside = [sum(1 for t in range(64) if t % 5 >= i) for i in range(5)]
    assert out[0].tolist() == [sum(inside[: t % 5 + 1]) for t in range(64)]
    assert out[1].tolist() == [sum(t % 5 + 1 for t in range(64))] * 64
    assert out[2].tolist() == [4 * 64 + (4 * 16000 if t < 16 else 0) for t in range(64)]
    launcher.launch("helper_twice", (1, 1, 1), (64, 1, 1), 0, [out])
    assert out[0].tolist() == [64 + (1001 if t < 32 else 0) for t in range(64)]


def test_reading_a_lane_that_is_not_there_gives_poison(gpu) -> None:
    source = r"""extern "C" __global__ void k(float* y) {
        int t = threadIdx.x; float v = t;
        if (t < 32) v = __shfl(v, 40);
        y[t] = v;
    }"""
    y = torch.zeros(64)
    gpu.run(source, "k", 1, 64, [y], poison=0xA5)
    assert y[:32].isnan().all()
    assert torch.equal(y[32:], torch.arange(32.0, 64.0))
    gpu.run(source, "k", 1, 64, [y], poison=0x5A)
    assert (y[:32] > 1e38).all()


SMALL = r"""
extern "C" __global__ void halves(const half* a, const half* b, half* y, __hip_bfloat16* z, float s, half h, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    half v = i < n ? __hadd(__hmul(a[i], b[i]), h) : __float2half(0.0f);
    half w = __shfl_xor(v, 1);
    __hip_bfloat16 bf = __shfl_xor(__float2bfloat16((i < n ? __half2float(a[i]) : 0.0f) * s), 1);
    if (i < n) { y[i] = w; z[i] = bf; }
}
"""


def test_half_and_bfloat16(gpu) -> None:
    a, b = torch.randn(256).half(), torch.randn(256).half()
    y, z = torch.empty(256).half(), torch.empty(256).bfloat16()
    gpu.run(SMALL, "halves", 2, 128, [a, b, y, z, 3.0, 0.5, 256])
    swap = torch.arange(256) ^ 1
    assert torch.equal(y, ((a * b) + torch.tensor(0.5).half())[swap])
    assert torch.equal(z, (a.float() * 3.0).bfloat16()[swap])


EXTREME = r"""
struct Pack { __half v[4]; };
extern "C" __global__ void extreme(const __half* x, float* y) {
    Pack pack;
    __builtin_memcpy(&pack, x + 4 * threadIdx.x, sizeof(pack));
    float found = __half2float(pack.v[0]);
    for (int k = 1; k < 4; ++k) found = fmaxf(found, __half2float(pack.v[k]));
    y[threadIdx.x] = found;
}
"""


@pytest.mark.parametrize("checked", [False, True])
def test_extremes_of_a_pack_of_halves(gpu, checked: bool) -> None:
    """clang makes vectors of these loops, and calls the C library for what has no instruction."""
    x = torch.randn(64, 4).half()
    x[3, 1], x[5, 2] = float("nan"), float("inf")
    rows, inf = x.float(), float("inf")
    for of, expected in (("fmaxf", rows.nan_to_num(-inf, inf).amax(1)), ("fminf", rows.nan_to_num(inf, inf).amin(1))):
        y = torch.zeros(64)
        gpu.run(EXTREME.replace("fmaxf", of), "extreme", 1, 64, [x, y], checked=checked)
        assert torch.equal(y, expected)


ATOMICS = r"""
__device__ int weights[2] = {1, 3};
extern "C" __global__ void counts(const int* x, int* histogram, float* sum, unsigned* top, double* dsum, int* total, int n) {
    __shared__ int local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&local[x[i]], 1);
        atomicAdd(sum, (float)x[i]);
        atomicAdd(dsum, 0.5);
        atomicMax(top, (unsigned)x[i]);
        atomicAdd(total, weights[i & 1]);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&histogram[threadIdx.x], local[threadIdx.x]);
}
extern "C" __global__ void read_total(int* total, int* out) { out[0] = *total; out[1] = atomicCAS(total, out[0], 5); out[2] = atomicExch(total, 6); }
"""


@pytest.mark.parametrize("checked", [False, True])
def test_atomics_and_module_variables(gpu, checked: bool) -> None:
    x = torch.randint(0, 16, (1000,), dtype=torch.int32)
    histogram, total = torch.zeros(16, dtype=torch.int32), torch.zeros(1)
    top, dsum, out = (
        torch.zeros(1, dtype=torch.int32),
        torch.zeros(1, dtype=torch.float64),
        torch.zeros(3, dtype=torch.int32),
    )
    count = torch.zeros(1, dtype=torch.int32)
    launcher = gpu.run(
        ATOMICS, "counts", 4, 256, [x, histogram, total, top, dsum, count, 1000], checked=checked, order="shuffle"
    )
    launcher.launch("read_total", (1, 1, 1), (1, 1, 1), 0, [count, out])
    assert torch.equal(histogram.long(), x.long().bincount(minlength=16))
    assert (total.item(), top.item(), dsum.item()) == (x.sum().item(), x.max().item(), 500.0)
    assert out.tolist() == [2000, 2000, 5]
    stats = launcher.stats()[0]
    assert stats["atomics"] == 5 * 1000 + 4 * 16
    assert stats["float_atomics"] == 2000
    assert stats["barriers"] == 2 * 4


def test_votes_at_a_barrier(gpu) -> None:
    source = r"""extern "C" __global__ void k(int* y) {
        int t = threadIdx.x;
        y[t] = __syncthreads_count(t < 70); y[128 + t] = __syncthreads_and(t < 70); y[256 + t] = __syncthreads_or(t == 3);
    }"""
    y = torch.zeros(3, 128, dtype=torch.int32)
    gpu.run(source, "k", 1, 128, [y])
    assert y[0].tolist() == [70] * 128
    assert (y[1] == 0).all()
    assert (y[2] == 1).all()


def test_three_dimensions(gpu) -> None:
    source = r"""extern "C" __global__ void k(int* y) {
        int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
        int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        y[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;
    }"""
    for order in ORDERS:
        y = torch.zeros(24, 30, dtype=torch.int32)
        gpu.run(source, "k", (2, 3, 4), (5, 3, 2), [y], order=order, seed=5)
        assert torch.equal(y, torch.arange(24, dtype=torch.int32)[:, None] * 1000 + torch.arange(30, dtype=torch.int32))


def test_an_order_exposes_a_missing_barrier(gpu) -> None:
    source = r"""extern "C" __global__ void k(const float* x, float* y) {
        __shared__ float s[128];
        s[threadIdx.x] = x[threadIdx.x];
        y[threadIdx.x] = s[threadIdx.x ^ 64];
    }"""
    x = torch.randn(128)
    outputs = []
    for order in ("forward", "reverse"):
        y = torch.zeros(128)
        gpu.run(source, "k", 1, 128, [x, y], order=order)
        outputs.append(y.clone())
    assert not torch.equal(*(o.nan_to_num(0.0) for o in outputs))
    assert all(o.isnan().any() for o in outputs)  # LDS starts as poison


def test_a_shuffled_run_is_decided_by_its_seed(gpu) -> None:
    source = r"""extern "C" __global__ void k(int* next, int* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1); }"""

    def run(seed: int) -> torch.Tensor:
        y = torch.zeros(512, dtype=torch.int32)
        gpu.run(source, "k", 4, 128, [torch.zeros(1, dtype=torch.int32), y], order="shuffle", seed=seed)
        return y

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    assert torch.equal(run(2).sort().values, torch.arange(512, dtype=torch.int32))


def test_strides_offsets_and_shared_storage(gpu) -> None:
    source = r"""extern "C" __global__ void k(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = 2 * x[i]; }"""
    base = torch.arange(20.0)
    x, y = base[2:10], base[10:18]  # one storage, two arguments
    gpu.run(source, "k", 1, 64, [x, y, 8])
    assert torch.equal(base, torch.cat([torch.arange(10.0), 2 * torch.arange(2.0, 10.0), torch.arange(18.0, 20.0)]))
