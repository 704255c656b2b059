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
