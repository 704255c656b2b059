"""Transposes by 16-byte vectors (templates/pointwise/transpose_vectors.py), beside those element by element."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds


def relued(x: torch.Tensor) -> Any:
    return torch.relu(x).permute(0, 2, 1).contiguous()


def biased(x: torch.Tensor, bias: torch.Tensor) -> Any:
    return torch.tanh(x + bias).transpose(1, 2).contiguous()


def both_biased(x: torch.Tensor, bias: torch.Tensor) -> Any:
    return x.transpose(1, 2).contiguous() * bias[:, None] + bias[0]


def twice(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x * 2 + y).transpose(1, 2).contiguous()


def check(
    function: Any, inputs: list[torch.Tensor], shown: list[torch.Tensor] | None = None, vectors: bool = True
) -> None:
    graph = captured(Op(function), shown or inputs)
    (key,) = [k for k, choice in space(graph).items() if "transpose" in choice.options]
    program = write(graph, {key: "transpose"})
    assert ("const bool by_vectors" in program.text) == vectors
    exact, native, _ = reference(Op(function), inputs)
    compare(run(program, Op(function), inputs)[0], exact, native)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("rows, columns", [(64, 128), (72, 200), (32, 1000)])
def test_whole_tiles_and_others(dtype: torch.dtype, rows: int, columns: int) -> None:
    x = torch.randn(2, rows, columns) * 100
    check(relued, [x.to(dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows, columns", [(16, 280), (280, 16), (32, 136), (136, 16), (96, 384), (18, 600), (600, 17)])
@pytest.mark.parametrize(("side", "threads"), [(32, 256), (64, 64), (64, 128)])
@pytest.mark.matrix(keep=14)
def test_tiles_of_few_lines_are_long(side: int, threads: int, rows: int, columns: int, dtype: torch.dtype) -> None:
    """Of one tile a block, whose sides are as few lines and as many elements as a square has."""
    x, bias = torch.randn(3, rows, columns).to(dtype), torch.randn(columns).to(dtype)
    graph = captured(Op(biased), [x, bias])
    (key,) = [k for k, choice in space(graph).items() if "transpose" in choice.options]
    program = write(graph, {key: "transpose", "TRANSPOSE_TILE": side, "BLOCK": threads})
    assert "constexpr int side = TRANSPOSE_TILE * TRANSPOSE_TILE / " in program.text
    for inputs in ([x, bias], [torch.randn(2, rows + 1, columns).to(dtype), bias]):
        exact, native, _ = reference(Op(biased), inputs)
        compare(run(program, Op(biased), inputs)[0], exact, native)


SIDES = [
    (128, 100, 4, 8),
    (68, 72, 8, 4),
    (66, 130, 2, 2),
    (64, 99, 1, 8),
    (67, 96, 8, 1),
    (33, 34, 2, 1),
    (67, 99, 1, 1),
]


@pytest.mark.parametrize("rows, columns, loaded, written", SIDES)
def test_narrower_vectors_of_halves(rows: int, columns: int, loaded: int, written: int) -> None:
    """Where 16 bytes do not divide a size, along which vectors are shorter; of one element along one size at most."""
    x, bias = torch.randn(2, rows, columns).half(), torch.randn(columns).half()
    vectors = max(loaded, written) > 1
    check(biased, [x, bias], vectors=vectors)
    check(biased, [torch.randn(3, rows + 2, columns).half(), bias], [x, bias], vectors=vectors)
    graph = captured(Op(biased), [x, bias])
    (key,) = [k for k, choice in space(graph).items() if "transpose" in choice.options]
    text = write(graph, {key: "transpose"}).text
    assert (f"load_aligned<{loaded}>(" in text) == vectors
    assert (f"store_whole<{written}>(" in text) == (1 < written < 8)
    assert (f"store_aligned<{written}>(" in text) == (written == 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_operands_along_the_result(dtype: torch.dtype) -> None:
    x = torch.randn(2, 64, 96).to(dtype)
    check(biased, [x, torch.randn(96).to(dtype)])
    check(both_biased, [x, torch.randn(96).to(dtype)])
    check(twice, [x, torch.randn(2, 64, 96).to(dtype)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_unaligned_sizes_and_addresses(dtype: torch.dtype) -> None:
    shown = [torch.randn(2, 64, 128).to(dtype)]
    check(relued, [torch.randn(3, 67, 129).to(dtype)], shown)
    flat = torch.randn(2 * 64 * 128 + 1).to(dtype)
    check(relued, [flat[1:].view(2, 64, 128)], shown)


def test_odd_sizes_and_mixed_types_use_no_vectors() -> None:
    check(relued, [torch.randn(2, 67, 129)], vectors=False)


def test_builds_everywhere() -> None:
    for dtype in (torch.float32, torch.float16):
        assert "const bool by_vectors" in builds(Op(relued), [torch.randn(8, 512, 1024).to(dtype)])
