"""Numbers beside half values are rounded to their type where a little less gives something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import author
from hipwright.engine.lower.table import held
from tests.engine.capturing import captured
from tests.engine.harness import Op, check, run

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
FUNCTIONS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: (x == 0.1, x != 0.2, x == 0.3),
    lambda x: (x >= 0.1, x > 0.1, x <= 0.2, x < 0.2),
    lambda x: (x == torch.tensor(0.1), x >= torch.tensor(0.2, dtype=torch.float64), x == torch.tensor(2049)),
    lambda x: torch.where(x >= 0.1, 1.0, 2.0),
    lambda x: torch.full_like(x, 0.1) == x,
    lambda x: torch.where(x > 0.15, x, 0.1) == 0.1,
    lambda x: x.masked_fill(x > 0.15, 0.1) == 0.1,
    lambda x: x.clamp(min=0.1) == 0.1,
    lambda x: (F.hardshrink(x, 0.1), F.hardshrink(x, 0.2)),
    lambda x: (x % 0.1, torch.fmod(x, 0.1)),
]


@pytest.mark.parametrize("name", HALVES)
def test_of_a_half_type(name: str) -> None:
    x = torch.tensor([0.1, 0.2, 0.3, -0.1, -0.2, 0.0, 2048, 65504], dtype=HALVES[name])
    model = Op(lambda x: [f(x) for f in FUNCTIONS])
    found, _ = run(author(captured(model, [x]), {}).program, model, [x])
    torch.testing.assert_close(found, model(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", HALVES)
def test_numbers_as_torch_holds_them(name: str) -> None:
    numbers = [0.1, -1e-7, 3.0, 2049, 65519.9, 65520.0, -1e6, 3.4e38, 1e39, float("inf"), -float("inf"), 0.0]
    expected = torch.tensor(numbers, dtype=torch.float32).to(HALVES[name])
    assert [held(n, name) for n in numbers] == expected.tolist()
    assert held(float("nan"), name) != held(float("nan"), name)
    assert held(True, name) is True and held(0.1, "float32") == 0.1 and held(None, name) is None


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 0.7, 1.0, 1.5])
def test_an_interpolation_ends_at_its_ends(weight: float) -> None:
    x, y = torch.tensor([1e10, 1.0, -3.0, 1e30]), torch.tensor([1.0, 2.0, 1e9, -1e-30])
    model = Op(lambda a, b, w: (torch.lerp(a, b, weight), torch.lerp(a, b, w)))
    check(model, [x, y, torch.full((4,), weight)])
    found, _ = run(author(captured(model, [x, y, x]), {}).program, model, [x, y, torch.full((4,), weight)])
    torch.testing.assert_close(found, (torch.lerp(x, y, weight),) * 2)
