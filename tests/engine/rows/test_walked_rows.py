"""Reductions that walk memory across their rows, or in short runs: columns of a matrix beside its rows, and groups of
channels that are stored last.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine.fuse import directions
from hipwright.engine.layout import reductions, shared_rows
from tests.engine.harness import Op, check, kernels_in

F = nn.functional


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of a test count as those of a device."""
    monkeypatch.setattr(directions, "CACHED", 1)
    monkeypatch.setattr(reductions, "CACHED", 1)
    monkeypatch.setattr(reductions, "LONG_RUNS", 1)


def symmetric(x: torch.Tensor) -> Any:
    target = torch.arange(x.shape[0], device=x.device)
    return F.cross_entropy(x, target, reduction="none") + F.cross_entropy(x.t(), target, reduction="none")


def extremes(x: torch.Tensor) -> Any:
    return x.amax(0), x.amax(1), x.sum(1)


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("side", [64, 67, 200])
def test_both_ways_through_a_matrix(side: int, wave: int) -> None:
    for function in (symmetric, extremes):
        x = torch.randn(side, side)
        text = check(Op(function), [x], wave=wave, other=[torch.randn(31, 31)] if function is extremes else None)
        assert kernels_in(text) == 2


class Groups(nn.Module):
    """A norm of groups over an image that is stored channels last, as a library convolution leaves it."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> Any:
        return F.silu(self.norm(x.permute(0, 3, 1, 2))).permute(0, 2, 3, 1).contiguous()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("groups", "channels"), [(32, 320), (16, 48), (32, 64)])
def test_groups_of_channels_stored_last(groups: int, channels: int, dtype: torch.dtype) -> None:
    model = Groups(groups, channels).to(dtype)
    given, other = (torch.randn(n, side, side, channels).to(dtype) for n, side in ((2, 9), (3, 5)))
    text = check(model, [given], other=[other])
    assert f"i / {channels // groups}" not in text, "channels are not split into rows of a group"
    assert kernels_in(text) == 2 and text.count("rsqrtf(") == 1, "the scale of a group is no element's to compute"


@pytest.mark.parametrize("spread", [1, 1 << 30])
def test_sums_by_one_block_and_by_several(monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    monkeypatch.setattr(shared_rows, "SPREAD_ROWS", spread)
    text = check(Op(lambda x: (x.exp() - 1.0 - x).sum(1)), [torch.randn(5, 16384)])
    assert ("COOP_BLOCKS" in text) == (spread > 5)
