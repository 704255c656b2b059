"""Depthwise convolutions of channels-last images: neighbouring threads take neighbouring channels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.engine.harness import check


class Block(torch.nn.Module):
    """A norm of each pixel, a depthwise convolution, and what reads its result."""

    def __init__(
        self, channels: int, kernel: int = 7, *, bias: bool = True, last: bool = True, stride: int = 1
    ) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(channels)
        self.conv = torch.nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels, bias=bias)
        self.last = last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.norm(x).permute(0, 3, 1, 2))
        return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2]) if self.last else torch.relu(x)


def image(channels: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(2, 9, 11, channels, dtype=dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_channels_last_in_and_out(dtype: torch.dtype, bias: bool) -> None:
    text = check(Block(40, bias=bias).to(dtype), [image(40, dtype)])
    assert "conv2d_taps" in text.split("def prepare")[1] and "conv2d_last" in text


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (5, 2)])
def test_results_of_channels_first_readers(kernel: int, stride: int) -> None:
    text = check(Block(36, kernel, last=False, stride=stride), [image(36)])
    assert "conv2d_taps" in text and "conv2d_last" not in text


def test_few_channels_and_the_library_keep_their_order() -> None:
    assert "conv2d_taps" not in check(Block(8), [image(8)])
    model = Block(40)
    text = check(model, [image(40)], choices={"call:conv2d": "library"}, library=["aten.conv2d.default"])
    assert "conv2d_taps" not in text


def test_weights_that_are_an_input_stay() -> None:
    class Given(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            y = F.conv2d(F.layer_norm(x, x.shape[-1:]).permute(0, 3, 1, 2), weight, None, 1, 1, 1, 40)
            return y.permute(0, 2, 3, 1) * 2.0

    given = [image(40), torch.randn(40, 1, 3, 3)]
    assert "conv2d_taps" not in check(Given(), given, library=["aten.conv2d.default"])
