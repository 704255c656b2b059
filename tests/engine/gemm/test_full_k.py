"""Products of a short k (full_k.py): all of k in LDS."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import explain, space, write
from hipwright.engine.templates.gemm.full_k import smallest_tile
from hipwright.engine.templates.gemm.tiling import ProductShape
from tests.engine.gemm.test_direct_product import a_transposed, b_transposed, with_epilogue
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds, program_builds

SHARED = 48 * 1024


def heads(x: torch.Tensor, weight: torch.Tensor) -> Any:
    return torch.einsum("bhi,hio->bho", x, weight)


def check(function: Any, inputs: list[torch.Tensor], shown: list[torch.Tensor] | None = None, **knobs: int) -> None:
    graph = captured(Op(function), shown or inputs)
    (key,) = [k for k in space(graph) if k.startswith("call:") and k.count(":") == 1]
    program = write(graph, {key: "whole", **knobs})
    assert "FULL_K_M" in program.text
    exact, native, _ = reference(Op(function), inputs)
    compare(run(program, Op(function), inputs)[0], exact, native)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (33, 47, 65), (9, 100, 31), (130, 12, 72), (20, 20, 100)])
def test_full_and_partial_tiles(m: int, n: int, k: int) -> None:
    check(torch.bmm, [torch.randn(3, m, k), torch.randn(3, k, n)])


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("function", [b_transposed, a_transposed, with_epilogue])
@pytest.mark.parametrize("side", [32, 37])
def test_transposed_operands_and_epilogues(function: Any, side: int) -> None:
    check(function, [torch.randn(5, side, side), torch.randn(5, side, side)])


def test_rows_of_a_larger_tensor() -> None:
    check(heads, [torch.randn(70, 4, 64), torch.randn(4, 64, 64)])


def test_unaligned_tensors_and_other_sizes() -> None:
    shown = [torch.randn(8, 32, 32), torch.randn(8, 32, 32)]
    check(torch.bmm, [torch.randn(3, 19, 90), torch.randn(3, 90, 71)], shown)
    flat = torch.randn(2 * 4096 + 1)
    check(torch.bmm, [flat[1:4097].view(4, 32, 32), flat[4097:].view(4, 32, 32)], shown)


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize("k", [100, 120, 104, 20, 52, 128, 76, 73])
def test_no_depth_needs_scratch(k: int) -> None:
    """On RDNA, with 256 registers, remainders of the steps of k and of the pieces spilled."""
    graph = captured(Op(torch.bmm), [torch.randn(1, 4096, k), torch.randn(1, k, 256)])
    (key,) = [one for one in space(graph) if one.startswith("call:") and one.count(":") == 1]
    program_builds(write(graph, {key: "whole"}), lambda target: 1)


@pytest.mark.parametrize(
    "knobs", [{"FULL_K_M": 1, "FULL_K_N": 16, "FULL_K_K": 16}, {"FULL_K_UNROLL": 1, "FULL_K_LOADS": 2, "FULL_K_K": 32}]
)
def test_tiles_of_the_knobs(knobs: dict[str, int]) -> None:
    check(torch.bmm, [torch.randn(2, 41, 70), torch.randn(2, 70, 50)], **knobs)


def test_tiles_fit_the_lds() -> None:
    for m, n, k in ((1000, 1000, 128), (64, 64, 72), (63, 63, 73), (9, 9, 1)):
        s = smallest_tile(ProductShape(8, m, n, k, "float32"))
        assert 4 * (8 * s.rows * (s.depth + 4) + s.depth * (s.columns + 4)) <= SHARED
        assert s.rows <= 8 and s.columns % 4 == s.depth % 4 == 0


def test_it_is_the_default_of_many_small_products() -> None:
    for batch, (m, n, k), expected in ((4000, (33, 47, 65), True), (2, (2048, 2048, 128), False)):
        a, b = torch.empty(batch, m, k, device="meta"), torch.empty(batch, k, n, device="meta")
        kernels = explain(captured(Op(torch.bmm), [torch.zeros_like(t, device="cpu") for t in (a, b)]))["kernels"]
        assert any(found["mapping"] == "call:whole" for found in kernels) == expected


def test_builds_everywhere() -> None:
    builds(Op(torch.bmm), [torch.randn(256, 33, 65), torch.randn(256, 65, 47)], least=1)  # LDS allows two blocks
    builds(Op(heads), [torch.randn(1024, 16, 64), torch.randn(16, 64, 64)], least=1)
