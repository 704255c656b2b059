"""Float32 attention by tensor cores: values, errors against the library's own, rows that are not finite, builds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hipwright.engine import author, write
from hipwright.engine.knobs import SPLIT
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.attention.test_attention_templates import (
    BRAIN,
    CALL,
    HALF,
    TARGETS,
    Attention,
    draw,
    qkv,
    row_without_keys,
)
from tests.engine.harness import CACHE, captured, compare, reference, run

CHOSEN = {CALL: "matrix_tiled", SPLIT: True}
CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "plain": ({}, qkv(1, 2, 70, 133, 64, 64)),
    "causal": ({"is_causal": True, "scale": 0.3}, qkv(1, 2, 90, 90, 32, 48)),
    "grouped": ({"enable_gqa": True}, qkv(2, 4, 21, 33, 16, 128, heads=2)),
    "wide": ({}, qkv(1, 1, 40, 50, 128, 112)),
    "masked": ({}, [*qkv(2, 2, 19, 29, 32, 32), row_without_keys(19, 29)]),
    "bias": ({}, [*qkv(2, 2, 19, 29, 32, 32), draw(2, 1, 19, 29)]),
}


def made(model: Any, inputs: list[Any], **how: Any) -> Any:
    program = write(captured(model, inputs), CHOSEN)
    assert "split_multiply" in program.text
    return run(program, model, inputs, **how)[0]


@pytest.mark.parametrize(("side", "wave"), [("nvidia", 32), ("", 64)])
@pytest.mark.parametrize("dtype", [torch.float32, HALF, BRAIN])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dtype: torch.dtype, side: str, wave: int) -> None:
    options, inputs = CASES[name]
    inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
    model = Attention(**options)
    expected, native, _ = reference(model, inputs)
    compare(made(model, inputs, side=side, wave=wave), expected, native)


@pytest.mark.parametrize("exponent", [-20, 0, 20])
def test_errors_are_those_of_float32(exponent: int) -> None:
    """The values' scale does not matter; the error is no larger than the library's."""
    q, k, v = qkv(1, 2, 64, 320, 64, 64)
    inputs = [q, k, v * 2.0**exponent]
    expected, native, _ = reference(Attention(), inputs)
    got = made(Attention(), inputs, side="nvidia", wave=32)
    worst = [((x.double() - expected).abs().max() / expected.abs().max()).item() for x in (got, native)]
    assert worst[0] <= 1.5 * worst[1] < 1e-5, worst


@pytest.mark.parametrize("dtype", [torch.float32, HALF, BRAIN])
def test_infinities_and_nan_go_where_the_module_sends_them(dtype: torch.dtype) -> None:
    q, k, v = qkv(1, 6, 70, 90, 32, 32)
    q[0, 0, 3, 2], q[0, 0, 4, 2] = math.nan, math.inf
    k[0, 1, 5], k[0, 2, 66, 2] = math.nan, -math.inf
    v[0, 3, 65, 1], v[0, 4, 0, 2] = math.inf, math.nan
    v[0, 5, 7, 3] = 3.4e38  # its high part is infinite
    inputs = [q.to(dtype), k.to(dtype), v.to(dtype)]
    expected, native, _ = reference(Attention(), inputs)
    got = made(Attention(), inputs, side="nvidia", wave=32)
    assert got.isnan().any() and got.isinf().any()
    compare(got, expected, native)


def test_the_rule() -> None:
    def offered(rows: int, dtype: torch.dtype, size: int = 64, **choices: Any) -> Any:
        return author(captured(Attention(), qkv(2, 8, rows, 512, size, size, dtype=dtype)), choices).space[CALL]

    assert offered(512, torch.float32, **{SPLIT: True}).default == "matrix_tiled"
    assert "matrix_tiled" not in offered(512, torch.float32).options
    assert "matrix_tiled" in offered(512, HALF, **{SPLIT: True}).options
    assert offered(512, HALF, **{SPLIT: True}).default != "matrix_tiled", "the library's kernel is faster"
    assert "matrix_tiled" not in offered(512, torch.float32, 40, **{SPLIT: True}).options
    assert offered(4, torch.float32, **{SPLIT: True}).default == "split"


class Written(torch.nn.Module):
    """Attention that no library kernel computes: fused projections, a bias by pairs, a soft cap."""

    def __init__(self, heads: int, size: int, cap: float = 0.0) -> None:
        super().__init__()
        self.heads, self.size, self.cap = heads, size, cap

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = x.view(*x.shape[:2], 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * self.size**-0.5 + bias
        scores = torch.tanh(scores / self.cap) * self.cap if self.cap else scores
        return (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(*x.shape[:2], -1)


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize(("cap", "size"), [(0.0, 32), (5.0, 64), (0.0, 128)])
def test_scores_of_half_types_that_no_library_kernel_computes(dtype: torch.dtype, cap: float, size: int) -> None:
    model = Written(2, size, cap)
    inputs = [draw(2, 150, 6 * size, dtype=dtype), draw(2, 150, 150, dtype=dtype)]
    graph = captured(model, inputs)
    (key,) = [key for key in author(graph, {SPLIT: True}).space if key.startswith("attention:")]
    program = write(graph, {SPLIT: True, key: "fused", "call:softmax_attention": "matrix_tiled"})
    assert "cp_async" in program.text and "torch.empty" in program.text and program.text.count("__global__") <= 2
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, side="nvidia", wave=32)[0], expected, native)


def test_the_rule_for_written_scores() -> None:
    inputs = [draw(512, 256, 6 * 32, dtype=HALF), draw(2, 256, 256, dtype=HALF)]
    space = author(captured(Written(2, 32), inputs), {SPLIT: True}).space
    assert space["call:softmax_attention"].default == "matrix_tiled"
    assert "call:softmax_attention" not in author(captured(Written(2, 32), inputs), {}).space


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("size", [64, 128])
def test_builds(size: int, dtype: torch.dtype) -> None:
    inputs = qkv(8, 16, 256, 256, size, size, dtype=dtype)
    program = write(captured(Attention(is_causal=True), inputs), CHOSEN)
    parsed = parse(program.text)
    for target in TARGETS:
        build = amdgpu.build(parsed.hip, target, parsed.defines(program.knobs), cache=CACHE, unsafe=True)
        assert build.ok, build.log
        assert [k.name for k in build.kernels if k.scratch_bytes] == []
    done, log, ptx = nvrtc.listing(parsed.hip, "", "sm_90", warm.compilers())
    assert done, log
    assert "ldmatrix" in ptx and "mma.sync" in ptx
