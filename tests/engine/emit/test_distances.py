"""Distances of positions, as masks compare them, are of 32 bits in kernels that count in int, with the same values."""

import pytest
import torch
from torch import nn

from hipwright.engine import write
from tests.engine.harness import captured, check


class Window(nn.Module):
    def forward(self, x):
        place = torch.arange(x.shape[-1])
        ago = place[:, None] - place[None, :]
        return x.masked_fill((ago < 0) | (ago >= 5), 0.0) + ago.float() * 0.5


class Used(nn.Module):
    """A distance that is also multiplied stays one of 64 bits there."""

    def forward(self, x):
        place = torch.arange(x.shape[-1])
        ago = place[:, None] - place[None, :]
        return torch.where(ago > -3, x, -x), ago * (ago + 1)


class Far(nn.Module):
    """Numbers of a range that is no dimension: their distance has more than 32 bits."""

    def forward(self, x):
        place = torch.arange(-2_000_000_000, -2_000_000_000 + x.shape[-1])
        other = torch.arange(2_000_000_000, 2_000_000_000 + x.shape[-1])
        return x.masked_fill(other[:, None] - place[None, :] < 0, 0.0), (other[:, None] - place[None, :]).float()


@pytest.mark.parametrize("size", [1, 7, 40])
@pytest.mark.parametrize("model", [Window, Used, Far])
def test_values_are_those_of_64_bits(model, size):
    check(model(), [torch.randn(3, size, size)])


def test_a_mask_is_compared_in_32_bits():
    text = write(captured(Window(), [torch.randn(3, 40, 40)])).text
    assert "(long)" not in text and " - " in text
