"""Rows summed by index in sorted order: uneven places, rows of every width, half types, one place; builds."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine import write
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds

ROWS = Op(lambda x, i, s: (x * 2).index_add(0, i, s, alpha=3))


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(3)) * 9).to(dtype)


def whole(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.matrix(keep=3)
def test_every_width_and_uneven_places(dtype: torch.dtype, wave: int) -> None:
    made = captured(ROWS, [draw(7, 16, dtype=dtype), whole(7, 150), draw(150, 16, dtype=dtype)])
    node = next(n.name for n in made.nodes if "index_add" in n.op)
    program = write(made, {f"call:{node}:order": "sorted"})
    assert "sums sorted rows" in program.text
    skewed = whole(300, 150).clamp(max=299)
    skewed[20:] = 299
    none = torch.empty(0, dtype=torch.int64)
    for places, index, columns in (
        (7, whole(7, 150), 16),
        (300, skewed, 19),
        (1, whole(1, 65), 5),
        (4, none, 8),
        (9, whole(9, 70), 1),
        (9, whole(9, 70), 0),
    ):
        inputs = [draw(places, columns, dtype=dtype), index, draw(len(index), columns, dtype=dtype)]
        got, _ = run(program, ROWS, inputs, wave=wave)
        exact, native, _ = reference(ROWS, inputs)
        compare(got, exact, native)


def test_nan_stays_in_its_place() -> None:
    made = captured(ROWS, [draw(7, 4), whole(7, 150), draw(150, 4)])
    node = next(n.name for n in made.nodes if "index_add" in n.op)
    source, index = draw(150, 4), whole(7, 150)
    source[9, 1], source[30, 2] = float("nan"), float("inf")
    inputs = [draw(7, 4), index, source]
    got, _ = run(write(made, {f"call:{node}:order": "sorted"}), ROWS, inputs)
    exact, native, _ = reference(ROWS, inputs)
    compare(got, exact, native)


def test_default_and_builds() -> None:
    few = write(captured(ROWS, [draw(50, 128), whole(50, 150), draw(150, 128)]))
    assert "sorted" not in few.text
    assert "sorted" in builds(ROWS, [torch.empty(2000, 128), whole(2000, 50000), torch.empty(50000, 128)])
