"""Chains of writes to slices: right values, and a text that is linear in the number of writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import write
from tests.engine.capturing import captured
from tests.engine.harness import Op, check

Written = Callable[[torch.Tensor, int], torch.Tensor]


def numbered(x: torch.Tensor, count: int) -> torch.Tensor:
    """Blocks of a new tensor get numbers, as the windows of a shifted attention's mask do."""
    y = torch.zeros(x.shape[0], 64)
    for k in range(count):
        y[k : -count + k, 2 * k : 2 * k + 5] = float(k)
    return y + x


def added(x: torch.Tensor, count: int) -> torch.Tensor:
    """Overlapping blocks of a copy are read and written."""
    y = x.clone()
    for k in range(count):
        y[k : -count + k, 2 * k : 2 * k + 5] += x[1, 2 * k : 2 * k + 5]
    return y


def selected(x: torch.Tensor, count: int) -> torch.Tensor:
    """Single columns are read and written."""
    y = x.clone()
    for k in range(count):
        y[:, 2 * k] *= x[:, k]
    return y


@pytest.mark.parametrize("written", [numbered, added, selected])
def test_the_text_is_linear_in_the_writes(written: Written) -> None:
    x = torch.randn(40, 64)
    few = check(Op(lambda x: written(x, 3)), [x], other=[torch.randn(50, 64)])
    many = write(captured(Op(lambda x: written(x, 12)), [x]))
    assert len(many.text) < 6 * len(few), (len(few), len(many.text))


def test_what_is_overwritten_is_not_read() -> None:
    def halves(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[:, :8] = y
        return out * 2

    text = check(Op(halves), [torch.randn(6, 16), torch.randn(6, 8)])
    assert "_value = x_0[" not in text.partition("if (")[0], "neither is loaded before the branch"
