"""Products of tiny matrices (direct.py): a thread loads all it needs at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import explain, space, write
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds


def b_transposed(a: torch.Tensor, b: torch.Tensor) -> Any:
    return torch.bmm(a, b.transpose(1, 2))


def a_transposed(a: torch.Tensor, b: torch.Tensor) -> Any:
    return torch.bmm(a.transpose(1, 2), b)


def with_epilogue(a: torch.Tensor, b: torch.Tensor) -> Any:
    return torch.relu(torch.bmm(a * 0.5, b) + b[:, :1]) + 1


def check(function: Any, inputs: list[torch.Tensor], shown: list[torch.Tensor] | None = None) -> None:
    graph = captured(Op(function), shown or inputs)
    (key,) = [k for k in space(graph) if k.startswith("call:bmm") and k.count(":") == 1]
    program = write(graph, {key: "tiny"})
    assert "TINY_BLOCK" in program.text
    exact, native, _ = reference(Op(function), inputs)
    compare(run(program, Op(function), inputs)[0], exact, native)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("m, n, k", [(16, 16, 16), (5, 7, 3), (1, 12, 20), (9, 4, 18)])
def test_full_and_partial_tiles(dtype: torch.dtype, m: int, n: int, k: int) -> None:
    check(torch.bmm, [torch.randn(33, m, k).to(dtype), torch.randn(33, k, n).to(dtype)])


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("function", [b_transposed, a_transposed, with_epilogue])
@pytest.mark.parametrize("side", [16, 7])
def test_transposed_operands_and_epilogues(function: Any, side: int) -> None:
    check(function, [torch.randn(20, side, side), torch.randn(20, side, side)])


def test_unaligned_tensors_and_other_sizes() -> None:
    shown = [torch.randn(256, 16, 16), torch.randn(256, 16, 16)]
    check(torch.bmm, [torch.randn(3, 19, 40), torch.randn(3, 40, 13)], shown)
    flat = torch.randn(2 * 4096 + 1)
    check(torch.bmm, [flat[1:4097].view(16, 16, 16), flat[4097:].view(16, 16, 16)], shown)


def test_it_is_the_default_of_short_sums_alone() -> None:
    for (m, n, k), expected in (((16, 16, 16), True), ((16, 16, 128), False), ((128, 128, 32), False)):
        kernels = explain(captured(Op(torch.bmm), [torch.randn(256, m, k), torch.randn(256, k, n)]))["kernels"]
        assert any(found["mapping"] == "call:tiny" for found in kernels) == expected


def elements(u: torch.Tensor, corners: torch.Tensor, stiffness: torch.Tensor, modulus: torch.Tensor) -> Any:
    """Finite elements: gathered values of few corners times a small matrix."""
    return (u[corners] @ stiffness) * modulus[:, None]


def test_many_rows_of_few_numbers_and_a_small_matrix() -> None:
    """32 lanes a row would wait for one another's sums: 5 shuffles for 8 multiply-adds."""

    def given(count: int, side: int) -> list[torch.Tensor]:
        return [torch.randn(99), torch.randint(0, 99, (count, side)), torch.randn(side, side), torch.rand(count)]

    for side, expected in ((3, True), (8, True), (40, False)):
        kernels = explain(captured(Op(elements), given(500_000, side)))["kernels"]
        assert any(found["mapping"] == "call:tiny" for found in kernels) == expected, side
    program = write(captured(Op(elements), given(500_000, 8)))
    inputs = given(70, 8)
    exact, native, _ = reference(Op(elements), inputs)
    compare(run(program, Op(elements), inputs)[0], exact, native)


def test_builds_everywhere() -> None:
    builds(Op(torch.bmm), [torch.randn(256, 16, 16), torch.randn(256, 16, 16)])
    builds(Op(b_transposed), [torch.randn(256, 16, 16).half(), torch.randn(256, 16, 16).half()])
