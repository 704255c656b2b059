"""Concatenations that grow: right, with text that does not grow with the square of the layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import write
from hipwright.engine.rewrite.growing import STEP
from tests.engine.harness import Op, captured, check


class Dense(nn.Module):
    """Layers that each read all results before, joined along channels."""

    def __init__(self, layers: int, *, last: bool = False) -> None:
        super().__init__()
        self.last = last
        self.norms = nn.ModuleList(nn.BatchNorm2d(3 + 2 * k) for k in range(layers))
        self.convs = nn.ModuleList(nn.Conv2d(3 + 2 * k, 2, 3, padding=1) for k in range(layers))

    def forward(self, x: torch.Tensor) -> Any:
        found = [x]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            whole = torch.cat(found, 1)
            found.append(conv(torch.relu(norm(whole))))
        return (torch.cat(found, 1), whole) if self.last else torch.cat(found, 1)


def dense(layers: int, **how: bool) -> nn.Module:
    torch.manual_seed(0)
    model = Dense(layers, **how).eval()
    for norm in model.norms:
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return model


@pytest.mark.parametrize("layers", [STEP - 1, STEP + 1, 3 * STEP + 2])
def test_every_layer_is_right_at_other_shapes_too(layers: int) -> None:
    check(dense(layers), [torch.randn(2, 3, 5, 4)], library=["aten.conv2d.default"], other=[torch.randn(3, 3, 7, 2)])


def test_an_earlier_whole_may_be_returned() -> None:
    check(dense(2 * STEP + 1, last=True), [torch.randn(2, 3, 5, 4)], library=["aten.conv2d.default"])


@pytest.mark.slow
def test_the_text_grows_with_the_layers_not_with_their_square() -> None:
    few, more, many = (
        len(write(captured(dense(n), [torch.randn(2, 3, 5, 4)]), {"exact": False}).text) for n in (8, 16, 32)
    )
    assert many - more < 2.4 * (more - few)


def test_pieces_joined_along_another_dimension_are_another_whole() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor) -> Any:
        rows = torch.cat([a, b, a, b], 0)
        columns = torch.cat([a, b, a, b, a], 1)
        longer = torch.cat([a, b, a, b, b], 0)
        return rows * 2, columns + 1, longer - 1

    check(Op(forward), [torch.randn(4, 4), torch.randn(4, 4)])
