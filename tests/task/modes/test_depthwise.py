"""Convolutions by channel in float64: as PyTorch computes them, and in a run of a reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.task.host.double_precision import float64
from hipwright.task.host.modes import depthwise
from hipwright.task.host.modes.ties import TieMarker

CONVOLUTION = torch.ops.aten.convolution.default


def arguments(draw: Any) -> tuple[Any, ...]:
    """A convolution by channel of one to three dimensions, and its inputs."""
    dims = draw(st.integers(1, 3))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(dims)]

    taps, stride, padding, dilation = each(1, 4), each(1, 3), each(0, 3), each(1, 2)
    sizes = [(t - 1) * d + 1 + more for t, d, more in zip(taps, dilation, each(0, 5), strict=True)]
    channels, many = draw(st.integers(8, 12)), draw(st.integers(1, 3))
    x = torch.randn(draw(st.integers(1, 3)), channels, *sizes, dtype=torch.float64)
    weight = torch.randn(channels * many, 1, *taps, dtype=torch.float64)
    bias = torch.randn(channels * many, dtype=torch.float64) if draw(st.booleans()) else None
    return x, weight, bias, stride, padding, dilation, False, [0] * dims, channels


@settings(max_examples=60)
@given(st.data())
def test_values_are_pytorchs(data: st.DataObject) -> None:
    args = arguments(data.draw)
    want = CONVOLUTION(*args)
    got = depthwise.by_channel(*args[:6])
    assert got.shape == want.shape and got.stride() == want.stride()
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the convolutions that are computed by channel."""
    taken, own = [], depthwise.by_channel

    def counted(*args: Any) -> torch.Tensor:
        taken.append(1)
        return own(*args)

    monkeypatch.setattr(depthwise, "by_channel", counted)
    return taken


@pytest.mark.parametrize("marks", [False, True])
def test_a_reference_in_float64_takes_it(monkeypatch: pytest.MonkeyPatch, marks: bool) -> None:
    taken = spied(monkeypatch)
    conv = torch.nn.Conv2d(16, 32, 3, 2, 1, groups=16).double()
    x = torch.randn(2, 16, 9, 7, dtype=torch.float64)
    want = conv(x)
    with torch.no_grad(), float64(TieMarker("float32", [x]) if marks else None):
        got = conv(x)
    assert taken and type(got) is torch.Tensor
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        lambda x, w: (x, w, 4),
        lambda x, w: (x.float(), w.float(), 16),
        lambda x, w: (x.to(memory_format=torch.channels_last), w, 16),
        lambda x, w: (x[:0], w, 16),
    ],
    ids=["groups of four", "float32", "channels last", "empty"],
)
def test_other_convolutions_are_pytorchs_own(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    taken = spied(monkeypatch)
    x, weight = torch.randn(2, 16, 9, 7, dtype=torch.float64), torch.randn(16, 1, 3, 3, dtype=torch.float64)
    x, weight, groups = change(x, weight)
    weight = weight.expand(16, 16 // groups, 3, 3)
    args = (x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    assert torch.equal(depthwise.called(CONVOLUTION, args, {}), CONVOLUTION(*args))
    assert not taken


def test_what_pytorch_refuses_is_refused() -> None:
    x, weight = torch.randn(1, 16, 2, 2, dtype=torch.float64), torch.randn(16, 1, 5, 5, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Kernel size"):
        depthwise.called(CONVOLUTION, (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 16), {})
