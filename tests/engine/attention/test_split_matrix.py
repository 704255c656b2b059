"""Attention of few queries by matrix units: values on every unit's path, as machine code, and builds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hipwright.engine import author, write
from hipwright.engine.knobs import SPLIT
from hipwright.program import parse
from hipwright.toolchain.nvidia import nvrtc
from tests import warm
from tests.engine.attention.test_attention_templates import (
    BRAIN,
    CALL,
    HALF,
    Attention,
    build_all,
    draw,
    qkv,
    row_without_keys,
)
from tests.engine.harness import captured, compare, reference, run

Case = tuple[dict[str, Any], list[Any], dict[str, int]]
CASES: dict[str, Case] = {
    "grouped": ({"enable_gqa": True}, qkv(2, 8, 1, 133, 64, 64, heads=1, dtype=HALF), {}),
    "one row": ({}, qkv(2, 3, 1, 129, 128, 128, dtype=BRAIN), {"DECODE_KEYS": 64, "DECODE_BLOCK": 128}),
    "more rows": ({"enable_gqa": True}, qkv(1, 6, 7, 70, 96, 64, heads=2, dtype=HALF), {"DECODE_KEYS": 64}),
    "causal": ({"is_causal": True}, qkv(1, 2, 5, 150, 32, 128, dtype=BRAIN), {"DECODE_KEYS": 128}),
    "wide": ({"scale": 0.3}, qkv(1, 1, 4, 65, 256, 256, dtype=HALF), {}),
    "no keys": ({}, [*qkv(1, 2, 3, 129, 64, 64, dtype=HALF), row_without_keys(3, 129)], {}),
    "masked": (
        {},
        [*qkv(1, 2, 3, 177, 64, 64, dtype=HALF), (torch.arange(177) < 40).expand(3, 177)],
        {f"{CALL}:hidden": "skipped"},
    ),
    "bias": ({}, [*qkv(1, 2, 3, 81, 64, 64, dtype=BRAIN), draw(1, 2, 3, 81, dtype=BRAIN)], {}),
}


def checked(case: Case, **how: Any) -> None:
    options, inputs, knobs = case
    model = Attention(**options)
    program = write(captured(model, inputs), {CALL: "matrix", **knobs})
    assert "FewRows" in program.text
    expected, native, _ = reference(model, inputs)
    got, _ = run(program, model, inputs, **how)
    compare(got, expected, native)


@pytest.mark.matrix(keep=6)
@pytest.mark.parametrize(("side", "wave"), [("nvidia", 32), ("amd", 64), ("amd", 32), ("", 64)])
@pytest.mark.parametrize("name", CASES)
def test_values_on_every_path(name: str, side: str, wave: int) -> None:
    checked(CASES[name], side=side, wave=wave)


@pytest.mark.parametrize("name", ["grouped", "one row", "wide"])
def test_machine_code(name: str) -> None:
    checked(CASES[name], simulated="gfx942")


def test_infinite_and_missing_numbers_behind_the_last_key_are_not_read() -> None:
    """Keys and values lie in a longer cache, whose rest is NaN."""
    q, k, v = qkv(1, 8, 1, 70, 64, 64, heads=1, dtype=HALF)
    cache = [torch.full((1, 1, 200, 64), float("nan")).half() for _ in range(2)]
    for whole, part in zip(cache, (k, v), strict=True):
        whole[:, :, :70] = part

    class Cached(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            attention = torch.nn.functional.scaled_dot_product_attention
            return attention(q, k[:, :, :70], v[:, :, :70], enable_gqa=True)

    model, inputs = Cached(), [q, *cache]
    program = write(captured(model, inputs), {CALL: "matrix"})
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, side="nvidia", wave=32)[0], expected, native)


@pytest.mark.parametrize(("side", "wave"), [("nvidia", 32), ("amd", 64), ("", 64)])
@pytest.mark.parametrize("size", [64, 128])
def test_infinities_and_nan_go_where_the_module_sends_them(size: int, side: str, wave: int) -> None:
    q, k, v = qkv(1, 4, 5, 150, 64, size, dtype=HALF)
    q[0, 0, 3, 2], q[0, 0, 4, 2] = math.nan, math.inf
    k[0, 1, 5] = math.nan
    v[0, 2, 65, 1], v[0, 2, 66, 1], v[0, 3, 0, 2], v[0, 3, 140, 3] = math.inf, -1.0, math.nan, -math.inf
    inputs = [q, k, v]
    program = write(captured(Attention(), inputs), {CALL: "matrix"})
    expected, native, _ = reference(Attention(), inputs)
    got, _ = run(program, Attention(), inputs, side=side, wave=wave)
    assert got.isinf().any() and got.isnan().any()
    compare(got, expected, native)


def test_the_rule() -> None:
    def default(heads: int, dtype: torch.dtype, **choices: Any) -> Any:
        graph = captured(Attention(enable_gqa=True), qkv(2, 8, 1, 512, 64, 64, heads=heads, dtype=dtype))
        return author(graph, choices).space[CALL]

    assert default(1, BRAIN, **{SPLIT: True}).default == "matrix"
    assert default(1, BRAIN).default == "split"
    assert default(8, BRAIN, **{SPLIT: True}).default == "split"
    assert "matrix" not in default(1, torch.float32).options


@pytest.mark.parametrize(("size", "dtype"), [(64, HALF), (128, BRAIN), (256, HALF)])
def test_no_scratch(size: int, dtype: torch.dtype) -> None:
    inputs = qkv(8, 32, 1, 1024, size, size, heads=8, dtype=dtype)
    program = write(captured(Attention(enable_gqa=True), inputs), {CALL: "matrix"})
    build_all(program.text, program.knobs)


def test_tensor_cores_in_ptx() -> None:
    inputs = qkv(8, 64, 1, 1024, 128, 128, heads=8, dtype=BRAIN)
    program = write(captured(Attention(enable_gqa=True), inputs), {CALL: "matrix"})
    parsed = parse(program.text)
    knobs = "".join(f"#define {name} {value}\n" for name, value in sorted(parsed.defines(program.knobs).items()))
    done, log, ptx = nvrtc.listing(parsed.hip, knobs, "sm_90", warm.compilers())
    assert done, log
    assert "mma.sync" in ptx
