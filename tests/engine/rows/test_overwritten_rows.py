"""Kernels that overwrite what they read: threads beyond the last row, which repeat it, must not read it."""

from __future__ import annotations

import pytest
import torch

from hipwright.engine import author
from tests.engine.harness import captured, check


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("shape", [(33, 129, 3), (7, 9, 11), (2, 33, 5, 5), (65, 17)])
def test_running_statistics(shape: tuple[int, ...], wave: int) -> None:
    kind = torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d
    check(kind(shape[1]), [torch.randn(shape)], wave=wave)


class Average(torch.nn.Module):
    """A moving average along rows: each row of the buffer is read and overwritten by the kernel that reads x."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.register_buffer("kept", torch.rand(rows, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.copy_(self.kept * 0.9 + torch.softmax(x, -1) * 0.1)
        return x.softmax(-1) * 2


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("shape", [(5, 33), (9, 8), (129, 65)])
@pytest.mark.parametrize("mapping", ["", "lanes"])
def test_rows_of_a_buffer(shape: tuple[int, int], wave: int, mapping: str) -> None:
    model, inputs = Average(*shape), [torch.randn(shape)]
    offered = author(captured(model, inputs)).space
    choices = {key: mapping for key, choice in offered.items() if mapping and mapping in choice.options}
    check(model, inputs, choices=choices, wave=wave)
