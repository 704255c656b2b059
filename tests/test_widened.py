"""Operators of half types that torch has on GPUs alone: in forwards of task files and in plans, on the processor."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hipwright.task.host.load import TaskModule
from hipwright.widened import WidenedHalves, Widening
from tests.program.support import plan_of

FILE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.avg_pool3d(x, 3, 2)

def get_inputs():
    return [torch.randn(2, 3, 7, 7, 7, dtype=torch.{})]
"""
HALVES = ("float16", "bfloat16")


def pooled(x: torch.Tensor) -> torch.Tensor:
    return F.avg_pool3d(x.float(), 3, 2).to(x.dtype)


@pytest.fixture
def lacking() -> None:
    try:
        F.avg_pool3d(torch.zeros(1, 1, 3, 3, 3, dtype=torch.float16), 3)
    except RuntimeError:
        return
    pytest.skip("this torch has the operator")


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("dtype", HALVES)
def test_a_forward_runs_in_float32_and_rounds(dtype: str) -> None:
    file = TaskModule("task.py", FILE.format(dtype))
    model, (x,) = file.model(0), file.inputs(0)
    for _ in range(2):
        assert torch.equal(file.guarded(lambda: model(x), "forward"), pooled(x))


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("dtype", HALVES)
def test_a_plan_s_call_does(dtype: str) -> None:
    plan, _ = plan_of("def forward(self, x):\n    y = F.avg_pool3d(x, (3, 3, 3), (2, 2, 2))\n    return y + 1\n")
    x = torch.randn(2, 3, 7, 7, 7, dtype=getattr(torch, dtype))
    assert torch.equal(plan.forward(x), pooled(x) + 1)


@pytest.mark.usefixtures("lacking")
def test_a_function_runs_again_the_first_time_alone() -> None:
    calls: list[int] = []
    run, x = Widening(), torch.randn(1, 1, 3, 3, 3).half()

    def forward() -> torch.Tensor:
        calls.append(0)
        return F.avg_pool3d(x, 3)

    assert torch.equal(run.run(forward), pooled(x)) and len(calls) == 2
    assert torch.equal(run.run(forward), pooled(x)) and len(calls) == 3


def test_other_errors_and_other_types_stay() -> None:
    with WidenedHalves(), pytest.raises(RuntimeError, match=r"must match|cannot be multiplied"):
        torch.zeros(2, 3, dtype=torch.float16) @ torch.zeros(2, 3, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="for 'Int'"):
        Widening().run(lambda: F.avg_pool3d(torch.zeros(1, 1, 3, 3, 3, dtype=torch.int32), 3))
