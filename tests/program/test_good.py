"""Golden programs: lowered and run with kernels that are Python functions, compared with what torch computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .golden_calls import CALLS
from .golden_case import Good
from .golden_control import CONTROL
from .support import plan_of

GOOD = [*CONTROL, *CALLS]


def same(got: Any, want: Any) -> None:
    if isinstance(want, torch.Tensor):
        assert got.shape == want.shape and got.dtype == want.dtype
        torch.testing.assert_close(got, want)
    elif isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            same(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        same(tuple(got.values()), tuple(want.values()))
    else:
        assert got == want and type(got) is type(want)


@pytest.mark.parametrize("case", GOOD, ids=[g.name for g in GOOD])
@torch.no_grad()
def test_plan_computes_what_torch_computes(case: Good) -> None:
    torch.manual_seed(0)
    model = case.model() if case.model else None
    plan, _ = plan_of(case.text, model, case.knobs)
    inputs = case.inputs()
    before = [t.clone() for t in inputs]
    same(plan.forward(*inputs), case.expected(model, *inputs))
    same(inputs, tuple(before))


def test_there_are_enough_golden_programs() -> None:
    assert len(GOOD) >= 25
