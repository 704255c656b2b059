"""Sums of rows that have one term at most: no loop, right for targets in, at the border of, and outside the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from hipwright.program import parse
from tests.engine.harness import Op, check


def kernels(text: str) -> list[str]:
    return [name for name in parse(text).kernels.signatures if not name.endswith("_exact")]


def places(target: torch.Tensor, width: int) -> torch.Tensor:
    return torch.arange(width) == target[:, None]


ONE: dict[str, Callable[..., Any]] = {
    "constant": lambda x, t: torch.where(places(t, x.shape[1]), 3.0, 0.0).sum(-1),
    "row's": lambda x, t: (
        torch.where(places(t, x.shape[1]) & (t != 2)[:, None], x[:, :1], 0.0).sum(-1, keepdim=True) - x
    ),
    "turned": lambda x, t: torch.where(t[:, None] == torch.arange(x.shape[1]), 1.5, 0.0).sum(1),
    "counted": lambda x, t: torch.where(places(t, x.shape[1]), 1, 0).sum(-1),
}
TARGETS = torch.tensor([0, 36, 5, -1, 37, 2, -100, 9])


@pytest.mark.parametrize("name", ONE)
def test_one_term_is_summed_without_a_loop(name: str) -> None:
    x = torch.randn(8, 37, generator=torch.Generator().manual_seed(0))
    text = check(Op(ONE[name]), [x, TARGETS], other=[x[:, :5].contiguous(), TARGETS])
    assert "reduce" not in text and "for (int start" not in text


MORE: dict[str, Callable[..., Any]] = {
    "other terms": lambda x, t: torch.where(places(t, x.shape[1]), 3.0, 1.0).sum(-1),
    "its own value": lambda x, t: torch.where(places(t, x.shape[1]), x, 0.0).sum(-1),
    "a shifted place": lambda x, t: torch.where(torch.arange(x.shape[1]) * 2 == t[:, None], 3.0, 0.0).sum(-1),
    "not equal": lambda x, t: torch.where(~places(t, x.shape[1]), 3.0, 0.0).sum(-1),
    "either": lambda x, t: torch.where(places(t, x.shape[1]) | places(t + 1, x.shape[1]), 3.0, 0.0).sum(-1),
    "largest": lambda x, t: torch.where(places(t, x.shape[1]), 3.0, 0.0).amax(-1),
    "all rows": lambda x, t: torch.where(places(t, x.shape[1]), 3.0, 0.0).sum(),
}


@pytest.mark.parametrize("name", MORE)
def test_other_sums_are_right(name: str) -> None:
    x = torch.randn(8, 37, generator=torch.Generator().manual_seed(0))
    check(Op(MORE[name]), [x, TARGETS], other=[x[:, :5].contiguous(), TARGETS])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_a_cross_entropy_reads_its_row_once_more(reduction: str, dtype: torch.dtype) -> None:
    """One pass for the statistics of the rows and one for the gradient, beside the mean over the rows."""

    def gradient(logits: torch.Tensor, target: torch.Tensor) -> Any:
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            loss = F.cross_entropy(logits.float(), target, reduction=reduction)
            (found,) = torch.autograd.grad(loss, [logits])
        return loss.detach(), found

    x = torch.randn(8, 37, generator=torch.Generator().manual_seed(0)).to(dtype)
    target = torch.tensor([0, 36, 5, -100, 7, 2, 11, 9])
    text = check(Op(gradient), [x, target])
    assert len(kernels(text)) <= 3
