"""Pointwise kernels: tiles of vectors, rows without reductions, short last dimensions; tails, odd sizes, guards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import explain, space, write
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import builds, program_builds


def shuffled(x: torch.Tensor) -> Any:
    return torch.nn.functional.pixel_shuffle(x, 4)


def interleaved(x: torch.Tensor) -> Any:
    return torch.stack([x, x * 2], -1).flatten(-2)


def affine(x: torch.Tensor, scale: torch.Tensor) -> Any:
    return torch.nn.functional.hardswish(x * scale[:, None] + 1)


def looked_up(x: torch.Tensor, table: torch.Tensor) -> Any:
    return table[x] * 2


def rotated(q: torch.Tensor, s: torch.Tensor) -> Any:
    a, b = q.chunk(2, -1)
    return torch.cat([a * s - b * s, a * s + b * s], -1)


def picks(function: Any, inputs: list[torch.Tensor], mapping: str) -> dict[str, Any]:
    """The choices that give every kernel this mapping; small sizes would get `scalar`."""
    names = [k for k in space(captured(Op(function), inputs)) if k.startswith("map:")]
    return dict.fromkeys(names, mapping)


@pytest.mark.parametrize("wave", [32, 64])
def test_short_last_dimensions(wave: int) -> None:
    x, other = torch.randn(2, 32, 5, 7).half(), torch.randn(1, 16, 3, 2).half()
    text = check(Op(shuffled), [x], choices=picks(shuffled, [x], "inner"), wave=wave, other=[other])
    assert "store_whole_vectors<1, 4>" in text
    assert " % 4" not in text.split("for (int s = 0")[1]  # the index is split once for four elements


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("factor", [2, 4])
def test_repeated_elements(factor: int, dtype: torch.dtype) -> None:
    """One load for the neighbours that nearest upsampling makes of an element."""
    grow = Op(lambda x: torch.nn.functional.interpolate(x * 0.5, scale_factor=factor))
    (kernel,) = explain(captured(grow, [torch.empty(16, 64, 64, 64, dtype=dtype)]))["kernels"]
    assert kernel["mapping"] == "inner"
    x, other = torch.randn(2, 3, 5, 37).to(dtype), torch.randn(1, 3, 2, 9).to(dtype)
    names = [k for k in space(captured(grow, [x])) if k.startswith("map:")]
    text = check(grow, [x], choices=dict.fromkeys(names, "inner"), other=[other])
    assert f"store_whole_vectors<1, {factor}>" in text


def test_operands_under_a_condition_are_no_interleaving() -> None:
    """Two operands under a condition on the last dimension."""
    check(Op(interleaved), [torch.randn(6, 40)])


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("length", "other"), [(264, 77), (259, 264), (40, 13)])
def test_rows(dtype: torch.dtype, length: int, other: int) -> None:
    """Whole vectors, tails within a vector, tiles beyond the row; other sizes than the captured."""
    x, scale = torch.randn(5, length).to(dtype), torch.rand(5).to(dtype)
    choices = {**picks(affine, [x, scale], "rows"), "ROW_BLOCK": 64, "ROW_ITEMS": 2, "LANES": 4, "BLOCK": 64}
    check(Op(affine), [x, scale], choices=choices, other=[torch.randn(5, other).to(dtype), scale])


@pytest.mark.parametrize("length", [520, 509])
def test_flat_tiles(length: int) -> None:
    """Elements beyond the end select no row of a table."""
    x, table = torch.randint(1, 4, (length,)), torch.randn(4)
    check(Op(looked_up), [x, table], choices=picks(looked_up, [x, table], "vector"))
    y = torch.randn(length).half()
    check(Op(lambda v: torch.sigmoid(v) * v), [y], choices={"map:mul": "vector", "map:sigmoid_mul": "vector"})


def test_conditional_loads_along_rows() -> None:
    """Conditional loads are single, by neighbours."""
    q, s = torch.randn(9, 128).bfloat16(), torch.rand(9, 64).bfloat16()
    text = check(Op(rotated), [q, s], choices=picks(rotated, [q, s], "rows"))
    assert "store_whole_vectors<ROW_ITEMS * ROW_VEC, 1>" in text


def test_copies_are_not_converted() -> None:
    """Half values that are only moved keep their bits, also of NaN, and cost no instruction."""
    body = write(captured(Op(shuffled), [torch.empty(4, 256, 64, 64).half()])).text.split('extern "C"')[0]
    assert "float" not in body.split("pixel_shuffle_kernel_body")[1]
    kernels = explain(captured(Op(shuffled), [torch.empty(4, 256, 64, 64).half()]))["kernels"]
    assert [k["mapping"] for k in kernels] == ["inner"]


def test_builds() -> None:
    builds(Op(shuffled), [torch.empty(8, 256, 64, 64).half()])
    builds(Op(affine), [torch.empty(64, 4096, 56).bfloat16()[..., 0].contiguous().T.contiguous(), torch.empty(4096)])


def test_exponentials_in_half() -> None:
    """By the device's own instruction, over the whole range and beyond."""
    x = torch.linspace(-100, 100, 1016).bfloat16()
    x[:4] = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0])
    model = Op(lambda v: torch.exp(v.float() * 0.5).bfloat16())
    names = [k for k in space(captured(model, [x])) if k.startswith("map:")]
    assert "exp_fast(" in check(model, [x], choices=dict.fromkeys(names, "vector"))
    assert "exp_fast" not in write(captured(Op(torch.exp), [x.float()])).text


def diffused(x: torch.Tensor, y: torch.Tensor) -> Any:
    """A step on a periodic grid; rows further away are no neighbours of a vector."""
    around = sum(torch.roll(x, step, axis) for step in (1, -1) for axis in (0, 1))
    return around * 0.25 - torch.roll(y, 1, 1) * x + torch.roll(x, 2, 1), torch.roll(y, -1, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("wave", [32, 64])
def test_neighbours_on_periodic_rows_lie_in_vectors(dtype: torch.dtype, wave: int) -> None:
    """At rows of whole vectors, of one, at odd ones, at one element."""
    drawn = torch.Generator().manual_seed(1)
    model, sizes = Op(diffused), ((40, 1032), (3, 8), (5, 61), (2, 1))
    cases = [[torch.randn(*size, generator=drawn).to(dtype) for _ in range(2)] for size in sizes]
    graph = captured(model, cases[0])
    written = write(graph, picks(diffused, cases[0], "rows"))
    assert written.text.count("= roll_vectors<") == 4, "both neighbours in each of two tensors"
    for case in cases:
        expected, native, _ = reference(model, case)
        compare(run(written, model, case, wave=wave)[0], expected, native)
    program_builds(written, lambda target: 2)
