"""The bytes that results of operators hold at once, from shapes alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.program.lower.live_bytes import LiveBytes

ONE = 4 * 64 * 64


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = x * 2  # the last one dies with the name
    return x


def kept(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x + number for number in range(5)])


def views(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).t().reshape(-1)[:5].view(5, 1)


def in_place(x: torch.Tensor) -> torch.Tensor:
    return (x * 1).add_(1).mul_(2)


@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("model, most", [(chain, 2), (kept, 10), (views, 2), (in_place, 1), (lambda x: x.view(-1), 0)])
def test_what_lives_at_once(device: str, model: Callable[[torch.Tensor], torch.Tensor], most: int) -> None:
    x = torch.empty(64, 64, device=device)
    with torch.no_grad(), LiveBytes() as living:
        model(x)
    assert living.most == most * ONE
