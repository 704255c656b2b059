"""Arguments that a launch reads and replaces."""

from __future__ import annotations

import torch

from hipwright.measure.estimate import estimate
from hipwright.program import parse
from hipwright.program.lower.trace import trace
from hipwright.program.updates import Updates
from hipwright.records import Build, KernelResources
from hipwright.targets import OFFLINE

TEXT = """HIP = r'''
#include <hip/hip_runtime.h>
extern "C" __global__ void fill(const float* x, float* y, float* spare, int n) {}
'''


def forward(self, x):
    product = torch.mm(x, x)
    fresh = torch.empty_like(x)
    fill[1, 64](x, fresh, None, 4)
    fill[1, 64](x, product, None, 4)
    fill[1, 64](x, fresh, product, 4)
    return fresh
"""


def test_what_empty_made_is_only_written_the_first_time() -> None:
    table = {"params": {}, "buffers": {}, "attrs": {}, "modules": {}, "training": False}
    reported = trace(parse(TEXT), {}, table, [torch.randn(2, 2)])["launches"]
    updated = [[bool(isinstance(arg, dict) and arg.get("updated")) for arg in one["args"]] for one in reported]
    assert updated == [[False, False, False, False], [False, True, False, False], [False, True, True, False]]


def test_a_tensor_of_the_same_memory_counts_in_each_launch() -> None:
    updates = Updates(parse(TEXT).signatures)
    made = torch.empty(4)
    updates.allocated(made)
    assert updates.replaced("fill", [made, made[:2], None, 4]) == [False, False, False, False]
    assert updates.replaced("fill", [made, made[2:], None, 4]) == [False, True, False, False]


def test_memory_that_a_freed_buffer_leaves_to_a_result_counts_twice() -> None:
    updates = Updates(parse(TEXT).signatures)
    for _ in range(50):
        updates.allocated(torch.empty(4))  # freed before any launch
        result = torch.ones(4)
        assert updates.replaced("fill", [result, result, None, 4]) == [False, True, False, False]


def test_the_estimate_moves_it_twice() -> None:
    target = OFFLINE["gfx942"]
    build = Build(target=target.name, ok=True, kernels=(KernelResources(name="fill", vgpr=16, sgpr=16),))
    spec = {"dtype": "float32", "shape": [1 << 20], "stride": [1]}

    def moved(args: list[dict[str, object]]) -> float:
        launch = {"kernel": "fill", "grid": [4096, 1, 1], "block": [256, 1, 1], "lds": 0, "args": args}
        return float(estimate(target, build, [launch], [], 0.0).detail[0]["bytes"])

    assert moved([{**spec, "updated": True}]) == moved([spec, spec]) == 2 * moved([spec])
