# ruff: noqa: E501 - small kernels read best in one line
"""What hardware would corrupt silently is reported with evidence; what is legitimate is not."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError
from tests.load import Watch

BOTH = pytest.mark.parametrize("checked", [False, True])
ORDERS = ["forward", "reverse", "shuffle"]


def failure(call) -> CandidateError:
    with pytest.raises(CandidateError) as caught:
        call()
    return caught.value


OFF_BY_ONE = r"""
extern "C" __global__ void write_past(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i <= n) y[i] = x[0]; }
extern "C" __global__ void read_past(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i + 1]; }
extern "C" __global__ void write_before(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i - 1] = x[i]; }
extern "C" __global__ void far(const float* x, float* y, long n) { y[n] = x[0]; }
"""


@BOTH
@pytest.mark.parametrize("kernel", ["write_past", "read_past"])
def test_one_element_past_the_end(gpu, kernel: str, checked: bool) -> None:
    x, y = torch.randn(512), torch.zeros(512)  # a multiple of 16 bytes: the end touches the page behind
    error = failure(lambda: gpu.run(OFF_BY_ONE, kernel, 3, 256, [x, y, 512], checked=checked))
    assert error.status == "out_of_bounds"
    assert error.evidence["kernel"] == kernel
    assert error.evidence["argument"] == ("y" if kernel == "write_past" else "x")
    assert error.evidence["element"] == 512
    assert error.evidence["kind"] == ("write" if kernel == "write_past" else "read")
    expected = ([2, 0, 0], [0, 0, 0]) if kernel == "write_past" else ([1, 0, 0], [255, 0, 0])
    assert (error.evidence["block"], error.evidence["thread"]) == expected
    if checked:
        assert error.evidence["bytes"] == 4
        assert error.evidence["line"] == 5 if kernel == "write_past" else 6  # three header lines, an empty one


@BOTH
def test_odd_sizes_and_the_front(gpu, checked: bool) -> None:
    x, y = torch.randn(5), torch.zeros(5)
    error = failure(lambda: gpu.run(OFF_BY_ONE, "write_past", 1, 64, [x, y, 5], checked=checked))
    assert (error.status, error.evidence["argument"], error.evidence["element"]) == ("out_of_bounds", "y", 5)
    error = failure(lambda: gpu.run(OFF_BY_ONE, "write_before", 1, 64, [x, y, 5], checked=checked))
    assert (error.evidence["argument"], error.evidence["element"]) == ("y", -1)
    error = failure(lambda: gpu.run(OFF_BY_ONE, "far", 1, 1, [x, y, 1 << 40], checked=checked))
    assert error.status == "out_of_bounds"


def test_a_read_past_an_odd_end_is_seen_by_the_checked_build(gpu) -> None:
    x, y = torch.randn(5), torch.zeros(5)
    error = failure(lambda: gpu.run(OFF_BY_ONE, "read_past", 1, 64, [x, y, 5], checked=True))
    assert (error.evidence["argument"], error.evidence["element"]) == ("x", 5)


@BOTH
def test_null_pointers(gpu, checked: bool) -> None:
    error = failure(lambda: gpu.run(OFF_BY_ONE, "far", 1, 1, [torch.ones(1), None, 0], checked=checked))
    assert error.status == "out_of_bounds"
    assert "null pointer argument (y)" in error.message and error.evidence["null"] == ["y"]


LDS = r"""
extern "C" __global__ void dynamic_past(float* y) {
    extern __shared__ float s[];
    s[threadIdx.x + 1] = 1.0f; __syncthreads(); y[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void static_big(float* y) { __shared__ float s[20000]; s[threadIdx.x] = 1; __syncthreads(); y[threadIdx.x] = s[0]; }
extern "C" __global__ void stack_array(int* y, int n) { int a[64]; for (int i = 0; i < 64; i++) a[i] = i * n; y[threadIdx.x] = a[(threadIdx.x * 7 + n) & 63]; }
extern "C" __global__ void deep(int* y, int n) { volatile int a[60000]; for (int i = 0; i < 60000; i++) a[i] = i; y[threadIdx.x] = a[n]; }
"""


@BOTH
def test_lds_bounds_and_limits(gpu, checked: bool) -> None:
    y = torch.zeros(20000)
    error = failure(lambda: gpu.run(LDS, "dynamic_past", 1, 64, [y], lds=256, checked=checked))
    assert (error.status, error.evidence["buffer"]) == ("out_of_bounds", "LDS")
    error = failure(lambda: gpu.run(LDS, "static_big", 1, 64, [y], checked=checked))
    assert error.status == "launch_error"
    assert "80000 static" in error.message
    gpu.run(LDS, "static_big", 1, 64, [y], checked=checked, lds_limit=160 << 10)
    error = failure(lambda: gpu.run(LDS, "dynamic_past", 1, 64, [y], lds=64 * 1024 + 256, checked=checked))
    assert error.status == "launch_error"


@BOTH
def test_local_arrays(gpu, checked: bool) -> None:
    y = torch.zeros(64, dtype=torch.int32)
    gpu.run(LDS, "stack_array", 1, 64, [y, 3], checked=checked)
    assert y.tolist() == [(t * 7 + 3 & 63) * 3 for t in range(64)]
    error = failure(lambda: gpu.run(LDS, "deep", 1, 64, [y, 3], checked=checked))
    assert error.status in ("launch_error", "out_of_bounds")


BARRIERS = r"""
extern "C" __global__ void two_sites(float* y) {
    if (threadIdx.x < 64) { y[threadIdx.x] = 1; __syncthreads(); } else { __syncthreads(); }
}
extern "C" __global__ void part_of_a_wave(float* y) {
    if (threadIdx.x % 64 < 32) __syncthreads();
    y[threadIdx.x] = __shfl(1.0f, 40);
}
extern "C" __global__ void early_exit(float* y, int n) {
    if ((int)threadIdx.x >= n) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void in_a_loop(float* y, int n) {
    __shared__ float s[128];
    for (int i = 0; i < n; i++) {
        s[threadIdx.x] = i;
        __syncthreads();
        if (threadIdx.x < 16) y[threadIdx.x] = __shfl(s[threadIdx.x + 1], 2);
        __syncthreads();
    }
}
"""


@BOTH
def test_barriers(gpu, checked: bool) -> None:
    y = torch.zeros(128)
    error = failure(lambda: gpu.run(BARRIERS, "two_sites", 1, 128, [y], checked=checked))
    assert (error.status, "barrier divergence" in error.message) == ("launch_error", True)
    assert error.evidence["line"] == error.evidence["other"]["line"] == 6
    error = failure(lambda: gpu.run(BARRIERS, "part_of_a_wave", 1, 128, [y], checked=checked))
    assert (error.status, "part of a wave" in error.message) == ("launch_error", True)
    gpu.run(BARRIERS, "early_exit", 1, 128, [y, 100], checked=checked)  # ended threads do not hold a barrier up
    assert y.sum() == 100
    gpu.run(BARRIERS, "in_a_loop", 1, 128, [y, 5], checked=checked)
    assert y[:16].tolist() == [4.0] * 16


@BOTH
def test_geometry(gpu, checked: bool) -> None:
    source = r"""extern "C" __global__ void k(int* y, unsigned char b) { y[0] = b; }"""
    y = torch.zeros(1, dtype=torch.int32)
    launcher = gpu.load(source, checked=checked)
    for grid, block in [
        ((0, 1, 1), (1, 1, 1)),
        ((1, 1, 1), (0, 1, 1)),
        ((1, 1, 1), (1025, 1, 1)),
        ((1, 70000, 1), (1, 1, 1)),
    ]:
        assert failure(lambda g=grid, b=block: launcher.launch("k", g, b, 0, [y, 1])).status == "launch_error"
    one = (1, 1, 1)
    for args in ([y], [y, 300], [3, 1], [y, y], [y, None]):
        assert failure(lambda a=args: launcher.launch("k", one, one, 0, a)).status == "launch_error"
    assert failure(lambda: launcher.launch("nothing", one, one, 0, [])).status == "launch_error"
    assert launcher.stats() == []
    launcher.launch("k", one, one, 0, [y, 255])
    assert y.item() == 255


ENDLESS = r"""
extern "C" __global__ void spin(int* y, int n) { for (int i = 0; ; i++) if (i == n) y[i & 1] = i; }
extern "C" __global__ void wait_forever(volatile int* y) { if (threadIdx.x == 0) while (y[0] == 0) {} __syncthreads(); y[1] = 1; }
extern "C" __global__ void bad_lock(int* y) { while (atomicCAS(y, 0, 1)) {} }
extern "C" __global__ void divide(int* y, int n) { y[0] = 7 / n; }
extern "C" __global__ void traps(int* y) { if (y[0] == 0) __builtin_trap(); }
"""


@BOTH
@pytest.mark.parametrize("kernel", ["spin", "wait_forever", "bad_lock"])
def test_a_launch_that_does_not_end(gpu, kernel: str, checked: bool) -> None:
    y = torch.zeros(2, dtype=torch.int32)
    args = [y, -1] if kernel == "spin" else [y]
    gpu.build(ENDLESS, checked=checked)
    with Watch() as watch:
        error = failure(lambda: gpu.run(ENDLESS, kernel, 1, 128, args, checked=checked, launch_limit_s=0.2))
    assert error.status == "timeout"
    assert error.evidence["kernel"] == kernel
    assert watch.seconds < 5
    launcher = gpu.load(ENDLESS, checked=checked)  # the process goes on
    launcher.launch("divide", (1, 1, 1), (1, 1, 1), 0, [y, 2])
    assert y[0] == 3


@BOTH
def test_traps(gpu, checked: bool) -> None:
    y = torch.zeros(2, dtype=torch.int32)
    assert "trap" in failure(lambda: gpu.run(ENDLESS, "traps", 1, 64, [y], checked=checked)).message


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
extern "C" __global__ void look_back(const float* x, float* y, int* ticket, volatile int* flag, volatile float* sums) {
    __shared__ int block;
    __shared__ float before;
    if (threadIdx.x == 0) block = atomicAdd(ticket, 1);
    __syncthreads();
    int b = block, i = b * 64 + threadIdx.x;
    float v = x[i];
    for (int o = 1; o < 64; o <<= 1) { float u = __shfl_up(v, o); if ((int)threadIdx.x >= o) v += u; }
    if (threadIdx.x == 63) {
        float sum = 0;
        if (b) { while (flag[b - 1] == 0) {} __threadfence(); sum = sums[b - 1]; }
        before = sum;
        sums[b] = sum + v;
        __threadfence();
        flag[b] = 1;
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
extern "C" __global__ void flag_from_another_block(volatile int* flag, int* y) {
    if (blockIdx.x == 0) { while (flag[0] == 0) {} y[0] = 7; } else flag[0] = 1;
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


CONSTANT_PLACES = r"""
extern "C" __global__ void exchange(const float* x, float* y) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 2) y[0] = tile[3] - tile[17];
}
"""


@BOTH
def test_lds_at_places_known_to_the_compiler(gpu, checked: bool) -> None:
    """Their operand in the IR is a constant expression, `ptr getelementptr inbounds nuw (i8, ptr @tile, i64 12)`."""
    x, y = torch.arange(64.0), torch.zeros(1)
    gpu.run(CONSTANT_PLACES, "exchange", 1, 64, [x, y], checked=checked)
    assert y.item() == 3.0 - 17.0
