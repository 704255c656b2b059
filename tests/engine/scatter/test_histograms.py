"""Sums over few places in LDS: every type, parts, windows, fewer rows of the index than of the places; builds."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine import write
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import builds

ROWS = Op(lambda x, i, s: (x * 2).scatter_add(1, i, s))
FLAT = Op(lambda x, i, s: x.index_add(0, i, s, alpha=2))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(3)) * 9).to(dtype)


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
@pytest.mark.matrix(keep=3)
def test_rows_of_few_places(dtype: torch.dtype, parts: int, wave: int) -> None:
    made = captured(ROWS, [draw(3, 7, dtype=dtype), whole(7, 3, 1100), draw(3, 1100, dtype=dtype)])
    node = next(n.name for n in made.nodes if "scatter_add" in n.op)
    program = write(made, {f"call:{node}:parts": parts})
    assert "bins[8]" in program.text and ("sums in LDS, 4 parts" in program.text) == (parts == 4)
    for inputs in (
        [draw(3, 7, dtype=dtype), whole(7, 3, 1100), draw(3, 1100, dtype=dtype)],
        [draw(5, 7, dtype=dtype), whole(7, 2, 31), draw(4, 40, dtype=dtype)],  # rows that the index has not
        [draw(3, 20, dtype=dtype), whole(20, 3, 65), draw(3, 65, dtype=dtype)],  # three windows
        [draw(3, 20, dtype=dtype), whole(20, 3, 0), draw(3, 0, dtype=dtype)],
    ):
        got, _ = run(program, ROWS, inputs, wave=wave)
        exact, native, _ = reference(ROWS, inputs)
        compare(got, exact, native)


def test_one_row_and_nan() -> None:
    check(FLAT, [draw(9), whole(9, 2000), draw(2000)])
    check(FLAT, [draw(9, dtype=torch.int32), whole(9, 500), draw(500, dtype=torch.int32)])
    bad = draw(200)
    bad[3], bad[70] = float("nan"), float("inf")
    check(ROWS, [draw(2, 9), whole(9, 2, 100), bad.view(2, 100)])


def test_many_places_stay_in_memory() -> None:
    text = write(captured(ROWS, [draw(2, 900), whole(900, 2, 1000), draw(2, 1000)])).text
    assert "bins" not in text


def test_builds() -> None:
    made = builds(ROWS, [torch.empty(512, 1024), whole(1024, 512, 8192), torch.empty(512, 8192)])
    assert "_start" not in made  # one kernel
    builds(FLAT, [torch.empty(64).half(), whole(64, 100000), torch.empty(100000).half()])
