# ruff: noqa: E501 - small kernels read best in one line
"""A write to memory that must not change is refused when it happens, also where it is undone in the same launch."""

from __future__ import annotations

import pytest
import torch

from hipwright.errors import CandidateError

BOTH = pytest.mark.parametrize("checked", [False, True])
WRITES = r"""
extern "C" __global__ void restored(float* x, float* y) {
    float v = x[threadIdx.x];
    *(volatile float*)(x + threadIdx.x) = v * 2;
    y[threadIdx.x] = *(volatile float*)(x + threadIdx.x);
    *(volatile float*)(x + threadIdx.x) = v;
}
extern "C" __global__ void same_value(float* x, float* y) { *(volatile float*)(x + threadIdx.x) = *(volatile float*)(x + threadIdx.x); y[threadIdx.x] = 1; }
extern "C" __global__ void added(float* x, float* y) { atomicAdd(x + threadIdx.x, 0.0f); y[threadIdx.x] = 1; }
extern "C" __global__ void through_a_row(float* x, float* y) { if (threadIdx.x == 63) *(volatile float*)(x + 63) = 0; y[threadIdx.x] = x[0]; }
extern "C" __global__ void right(float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void own_copy(float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; y[threadIdx.x] += 1; }
"""


@BOTH
@pytest.mark.parametrize("kernel", ["restored", "same_value", "added", "through_a_row"])
def test_a_write_is_refused(gpu, kernel: str, checked: bool) -> None:
    launcher = gpu.load(WRITES, checked=checked)
    x, y = launcher.guard(torch.randn(64)), launcher.empty((64,), torch.float32)
    launcher.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [x, y])
    launcher.keep_unchanged([x])
    with pytest.raises(CandidateError) as caught:
        launcher.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [x, y])
    assert caught.value.status == "input_mutated"
    assert caught.value.evidence["argument"] == "x"
    assert caught.value.evidence["element"] == (63 if kernel == "through_a_row" else 0)
    x.copy_(torch.zeros(64))  # the host may write between calls
    launcher.keep_unchanged([])
    launcher.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [x, y])


@BOTH
def test_reads_and_other_buffers_are_free(gpu, checked: bool) -> None:
    launcher = gpu.load(WRITES, checked=checked)
    x, y = launcher.guard(torch.randn(64)), launcher.empty((64,), torch.float32)
    launcher.keep_unchanged([x])
    for kernel in ("right", "own_copy"):
        launcher.launch(kernel, (1, 1, 1), (64, 1, 1), 0, [x, y])
    assert torch.equal(y, x + 1)


def test_a_write_beside_an_unchanged_buffer_is_out_of_bounds(gpu) -> None:
    source = r"""extern "C" __global__ void k(float* x, int at) { *(volatile float*)(x + at) = 1; }"""
    launcher = gpu.load(source)
    x = launcher.guard(torch.randn(63))
    launcher.keep_unchanged([x])
    for at in (63, -1):
        with pytest.raises(CandidateError) as caught:
            launcher.launch("k", (1, 1, 1), (1, 1, 1), 0, [x, at])
        assert caught.value.status == "out_of_bounds"
