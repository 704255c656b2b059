"""Sums over short runs that read a gathered element each are loops of one thread, which gathers once for a run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import write
from tests.engine.harness import Op, captured, compare, reference, run

MANY = 1 << 17


def gaps(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two sums of a run's differences to one of its elements."""
    apart = x - x.gather(1, y[:, None])
    return apart.abs().mean(), (apart * 0.5).sum()


CASES = [
    (nn.MultiMarginLoss(), torch.float32),
    (nn.MultiMarginLoss(p=2, reduction="sum"), torch.float32),
    (Op(gaps), torch.float16),
]


@pytest.mark.parametrize(("model", "dtype"), CASES)
def test_a_thread_sums_a_run(model: nn.Module, dtype: torch.dtype) -> None:
    shapes = torch.empty((MANY, 10), dtype=dtype), torch.zeros(MANY, dtype=torch.int64)
    program = write(captured(model, list(shapes)))
    assert " % x_1" not in program.text  # no element divides its position
    for rows, run_length in ((3000, 10), (1, 3), (517, 32)):
        torch.manual_seed(rows)
        x, y = torch.randn(rows, run_length).to(dtype), torch.randint(0, run_length, (rows,))
        expected, native, _ = reference(model, [x, y])
        compare(run(program, model, [x, y])[0], expected, native)


@pytest.mark.parametrize(
    ("model", "shape"), [(nn.MultiMarginLoss(), (100, 10)), (Op(lambda x, y: F.nll_loss(x, y)), (MANY, 10))]
)
def test_few_runs_and_sums_of_their_own_do_not(model: nn.Module, shape: tuple[int, int]) -> None:
    text = write(captured(model, [torch.empty(shape), torch.zeros(shape[0], dtype=torch.int64)])).text
    assert "for (int v" not in text.replace("for (int vector", "")
