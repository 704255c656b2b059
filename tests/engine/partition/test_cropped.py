"""Convolutions of which only the first outputs are read: causal ones make no others, and what follows is fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain
from tests.engine.harness import captured, check


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7)).to(dtype)


class Read(nn.Module):
    """A convolution, and what is read of it."""

    def __init__(self, conv: nn.Module, read: Callable[..., Any]) -> None:
        super().__init__()
        self.conv, self.read = conv, read
        for p in self.parameters():
            p.data = draw(*p.shape)

    def forward(self, x: torch.Tensor) -> Any:
        return self.read(self.conv(x), x)


def depthwise(read: Callable[..., Any]) -> Read:
    """Six channels of four taps, and three zeros at either end."""
    return Read(nn.Conv1d(6, 6, 4, padding=3, groups=6), read)


def causal(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.silu(y[..., : x.shape[-1]])


def corner(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Two slices, of rows and of columns."""
    return torch.relu(y[:, :, : x.shape[2]][..., :5])


@pytest.mark.parametrize(("call", "wave"), [("stencil", 32), ("stencil", 64), ("implicit", 64), ("library", 64)])
def test_a_causal_convolution_makes_what_is_read(call: str, wave: int) -> None:
    library = ("aten.conv1d.default",) if call == "library" else ()
    check(
        depthwise(causal),
        [draw(2, 6, 41)],
        choices={"call:conv1d": call},
        wave=wave,
        other=[draw(1, 6, 1)],
        library=library,
    )


def test_it_is_one_kernel() -> None:
    """By default, and in half, whose rows are then whole packs."""
    model, x = depthwise(causal).half(), draw(2, 6, 64).half()
    (kernel,) = explain(captured(model, [x]))["kernels"]
    assert {"conv1d", "silu"} <= set(kernel["nodes"])
    assert "conv1d_product" not in check(model, [x], other=[draw(2, 6, 41).half()])


def test_from_the_end() -> None:
    """The usual way to write it."""
    model, x = depthwise(lambda y, x: y[..., :-3] * 2), draw(2, 6, 41)
    assert len(explain(captured(model, [x]))["kernels"]) == 1
    check(model, [x], other=[draw(1, 6, 2)])


@pytest.mark.parametrize("call", ["stencil", "implicit"])
def test_a_corner_of_an_image(call: str) -> None:
    model, x = Read(nn.Conv2d(3, 4, 3, padding=2, bias=False), corner), draw(2, 3, 9, 12)
    check(model, [x], choices={"call:conv2d": call})
    assert len(explain(captured(model, [x]), {"call:conv2d": call})["kernels"]) == 1


def behind(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The last outputs, not the first."""
    return y[..., 3:] * 2


def both(y: torch.Tensor, x: torch.Tensor) -> Any:
    """Another reader wants them all."""
    return y[..., : x.shape[-1]] + 1, y.sum(-1)


def wanted(y: torch.Tensor, x: torch.Tensor) -> Any:
    """They are returned, too."""
    return y[..., : x.shape[-1]] + 1, y


def channels(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The first channels are no window's business."""
    return y[:, :4] + 1


def stepped(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return y[..., ::2] + 1


@pytest.mark.parametrize("read", [behind, both, wanted, channels, stepped])
def test_others_are_made_whole(read: Callable[..., Any]) -> None:
    check(depthwise(read), [draw(2, 6, 41)], choices={"call:conv1d": "stencil"})
