"""A program's kernels with their operators, and the difference of two texts."""

from __future__ import annotations

import time

import torch
from hypothesis import given
from hypothesis import strategies as st

from hipwright.engine import author
from hipwright.records import Program
from hipwright.view.sources import MOST_LINES, DiffLine, FusedKernel, difference, fused_kernels
from tests.engine.harness import Op, captured

TEXT = '''HIP = r"""
#include <hip/hip_runtime.h>

// conv2d: tile 1x1x1
extern "C" __global__ void __launch_bounds__(STENCIL_BLOCK) conv2d_kernel(
    const float* x) {}

// mean, conv2d, relu
extern "C" __global__ void __launch_bounds__(min(ROW_BLOCK, 4), 1) mean_conv2d_relu(const float* x) {}

// what I thought (it was late)
// of this kernel
extern "C" __global__ void late(float* y) {}
__global__ void bare(float* y) {}
__device__ float helper(float x) { return x; }
"""

def forward(self, x):
    return x
'''


def test_kernels_are_named_with_the_operators_above_them() -> None:
    assert fused_kernels(TEXT) == [
        FusedKernel("conv2d_kernel", ("conv2d",), "tile 1x1x1"),
        FusedKernel("mean_conv2d_relu", ("mean", "conv2d", "relu")),
        FusedKernel("late", (), "what I thought (it was late) of this kernel"),
        FusedKernel("bare", ()),
    ]


def test_a_written_program_of_the_engine_names_its_operators() -> None:
    graph = captured(Op(lambda x: torch.softmax(x * 2, -1)), [torch.randn(4, 64)])
    kernels = fused_kernels(author(graph).program.text)
    explained = author(graph).explanation["kernels"]
    assert [(kernel.name, list(kernel.operators)) for kernel in kernels] == [
        (item["name"], item["nodes"]) for item in explained
    ]


@given(st.text(alphabet='/ \n"_()<>globalkernevidx,:{}*', max_size=400))
def test_any_text_is_read(text: str) -> None:
    for kernel in fused_kernels(text):
        assert kernel.name.isidentifier()


def test_long_comments_take_no_long_time() -> None:
    begun = time.monotonic()
    assert fused_kernels("// a\n" * 20_000 + "void f() {}") == []
    assert fused_kernels("__global__ __launch_bounds__(" + "(" * 50_000) != [FusedKernel("f", ())]
    assert len(fused_kernels("__global__ void f(" * 10_000)) == 1
    assert len(fused_kernels("__global__ void f(int x)\n" * 10_000)) == 10_000
    assert time.monotonic() - begun < 5


def test_a_difference_has_the_knobs_and_the_changed_lines() -> None:
    before, after = Program(text="a\nb\nc", knobs={"N": 1}), Program(text="a\nB\nc", knobs={"N": 2})
    found = difference(before, after)
    assert found is not None
    assert [line for line in found if line.kind in ("add", "del")] == [
        DiffLine("del", "# N = 1"),
        DiffLine("add", "# N = 2"),
        DiffLine("del", "b"),
        DiffLine("add", "B"),
    ]
    assert difference(before, before) == []
    assert difference(None, after) is None and difference(before, Program(text="x\n" * (MOST_LINES + 1))) is None
