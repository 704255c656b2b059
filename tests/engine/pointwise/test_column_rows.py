"""Kernels by several rows, whose threads keep the values of their columns (templates/pointwise/column_rows.py)."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from tests.engine.harness import Op, captured, check
from tests.engine.template_builds import builds

SMALL = {"ROW_BLOCK": 64, "BLOCK": 64, "LANES": 4, "COLUMN_ROWS": 4, "ROWS_AT_ONCE": 2}
ROWS = "#pragma unroll 1"
"""The line before the loop over a thread's rows."""


def normalised(x: torch.Tensor, mean: torch.Tensor, spread: torch.Tensor, weight: torch.Tensor) -> Any:
    return (x - mean) * torch.rsqrt(spread.abs() + 1e-5) * weight


def several(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    total = x / (1 + x.abs()) * weight - bias
    return total, (y > 0) & (bias > 0), total.double() if total.dtype == torch.float32 else total.float()


def shifted(x: torch.Tensor, bias: torch.Tensor) -> Any:
    """Columns of another order, and a bias of a part of the columns."""
    return x * bias + bias.roll(1) - torch.nn.functional.pad(bias[3:], (3, 0))


def by_columns(function: Any, inputs: list[torch.Tensor], **knobs: Any) -> dict[str, Any]:
    """The choices of this mapping; small sizes would get another."""
    names = [k for k in space(captured(Op(function), inputs)) if k.startswith("map:")]
    return {**dict.fromkeys(names, "columns"), **SMALL, **knobs}


def columns(count: int, width: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(width, generator=generator).to(dtype) for _ in range(count)]


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(9, 264), (3, 3, 1030), (7, 96), (4, 17), (8, 2048)], ids=str)
@pytest.mark.matrix(keep=8)
def test_values(shape: tuple[int, ...], dtype: torch.dtype, wave: int) -> None:
    """Rows that are cut, that end within a vector, short ones by lanes; other numbers of rows than the captured."""
    x, other = torch.randn(shape).to(dtype), torch.randn(shape[0] + 4, *shape[1:]).to(dtype)
    given = [*columns(1, shape[-1], dtype), *columns(2, shape[-1], torch.float32)]
    choices = by_columns(normalised, [x, *given])
    text = check(Op(normalised), [x, *given], choices=choices, wave=wave, other=[other, *given])
    assert ROWS in text


@pytest.mark.parametrize("knobs", [{"COLUMN_ROWS": 1}, {"ROWS_AT_ONCE": 8}, {"ROW_VEC": 1}, {"ROW_VEC": 8}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_results(dtype: torch.dtype, knobs: dict[str, int]) -> None:
    x, y = torch.randn(2, 11, 520).to(dtype)
    given = columns(2, 520, dtype)
    assert ROWS in check(Op(several), [x, y, *given], choices=by_columns(several, [x, y, *given], **knobs))


@pytest.mark.parametrize("length", [520, 77])
def test_columns_that_are_no_vectors(length: int) -> None:
    x, bias = torch.randn(9, length).half(), torch.randn(length).half()
    assert ROWS in check(Op(shifted), [x, bias], choices=by_columns(shifted, [x, bias]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_in_place(dtype: torch.dtype) -> None:
    """The last rows of a thread are cut, and loaded twice."""

    def scaled(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        return torch.nn.functional.selu(torch.mm(x, y) * weight + bias)

    given = [torch.randn(13, 16).to(dtype), torch.randn(16, 520).to(dtype), *columns(2, 520, dtype)]
    choices = {"call:mm": "library", **by_columns(scaled, given)}
    text = check(Op(scaled), given, choices={**choices, "map:selu_mul_add": "columns"}, library=["aten.mm.default"])
    assert "load_row_vectors<ROWS_AT_ONCE, ROW_VEC>(mm + column" in text
    assert "store_row_vectors<ROWS_AT_ONCE, ROW_VEC>(mm + column" in text


def test_columns_are_read_and_computed_before_the_rows() -> None:
    x, given = torch.empty(4096, 4096).bfloat16(), [torch.empty(4096).bfloat16(), *[torch.empty(4096)] * 2]
    text = write(captured(Op(normalised), [x, *given])).text
    before, _, after = text.partition("} else {")[0].partition(ROWS)
    assert "rsqrtf(" in before
    assert all(f"load_whole_vectors<1, ROW_VEC>(x_{k}, column" in before for k in (1, 2, 3))
    assert after.count("load_") == 1 and "rsqrtf(" not in after


def test_other_kernels_are_by_single_rows() -> None:
    """One bias costs no more than the elements; values of rows have no place in a thread of several."""
    half, bias = torch.empty(4096, 4096).half(), torch.empty(4096).half()
    assert ROWS not in write(captured(Op(torch.add), [half, bias])).text
    scaled = captured(Op(lambda x, s, a, b: x * s + a - b), [half, torch.empty(4096, 1).half(), bias, bias])
    assert not any("columns" in choice.options for choice in space(scaled).values())


def test_few_elements_keep_their_threads() -> None:
    given = [torch.empty(512, 1024).half(), *[torch.empty(1024)] * 3]
    assert ROWS not in write(captured(Op(normalised), given)).text


def test_builds() -> None:
    given = [torch.empty(4096).bfloat16(), *[torch.empty(4096)] * 2]
    assert ROWS in builds(Op(normalised), [torch.empty(4096, 4096).bfloat16(), *given])
    lanes = [torch.empty(1 << 17, 128).half(), *[torch.empty(128)] * 3]
    assert "LANES" in builds(Op(normalised), lanes)
