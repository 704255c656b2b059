"""Half convolutions whose image and weight have channels of zeros: values, what is copied, and the default."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hipwright.engine.authoring import author
from hipwright.engine.knobs import SPLIT
from tests.engine.harness import captured, check

HALF = torch.float16
LIBRARY = ["aten.conv2d.default"]


class Stem(nn.Module):
    """The beginning of a network of images: a large window, a norm, a pooling; and another window beside it."""

    def __init__(self, channels: int, taps: int, dtype: torch.dtype = HALF) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 16, taps, stride=2, padding=taps // 2, bias=False)
        self.second = nn.Conv2d(channels, 16, taps, stride=2, padding=taps // 2)
        self.norm = nn.BatchNorm2d(16)
        self.to(dtype).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.max_pool2d(torch.relu(self.norm(self.first(x))), 3, 2, 1)
        return pooled + F.max_pool2d(self.second(x), 3, 2, 1)


@pytest.mark.parametrize(("channels", "taps"), [(3, 7), (2, 9), (6, 5), (12, 3), (36, 3)])
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16])
@pytest.mark.matrix(keep=6)
def test_values_for_other_sizes_too(channels: int, taps: int, dtype: torch.dtype) -> None:
    """One copy of the image for both convolutions, and weights with zeros in `prepare`."""
    torch.manual_seed(0)
    names = ("conv2d", "conv2d_1")
    choices: dict[str, Any] = {f"{kind}:{name}": True for name in names for kind in ("pad", "channels_last")}
    choices |= {f"call:{name}": "library" for name in names}
    images = [torch.randn(2, channels, *size, dtype=dtype) for size in ((20, 24), (13, 11))]
    text = check(Stem(channels, taps, dtype), images[:1], choices=choices, library=LIBRARY, other=images[1:])
    prepared, forward = text[text.index("def prepare") :].split("def forward")
    assert prepared.count("torch.empty") == 2 and forward.count("_last = torch.empty") == 1, text
    width = 4 if channels <= 4 else channels + -channels % 8
    assert f"x_2, x_3, {width})" in forward and f", {taps}, {taps}, {width})" in prepared, text


@pytest.mark.parametrize(
    ("layer", "shape", "default"),
    [
        (nn.Conv2d(3, 64, 7, stride=2, dtype=HALF), (32, 3, 128, 128), True),
        (nn.Conv2d(36, 64, 3, dtype=HALF), (32, 36, 64, 64), True),
        (nn.Conv2d(4, 64, 7, dtype=HALF), (32, 4, 128, 128), None),
        (nn.Conv2d(3, 64, 3, dtype=HALF), (32, 3, 128, 128), None),
        (nn.Conv2d(36, 64, 3, dtype=HALF), (1, 36, 8, 8), False),
        (nn.Conv2d(36, 60, 3, dtype=HALF), (32, 36, 64, 64), None),
        (nn.Conv2d(36, 64, 1, dtype=HALF), (32, 36, 64, 64), None),
        (nn.Conv2d(36, 64, 3), (32, 36, 64, 64), None),
        (nn.Conv2d(36, 72, 3, groups=2, dtype=HALF), (32, 36, 64, 64), None),
    ],
)
def test_the_default_is_that_of_channels_last(layer: nn.Module, shape: tuple[int, ...], default: bool | None) -> None:
    """For NVIDIA GPUs; none where the engine's kernel or a product of single positions is the default."""
    graph = captured(layer.to("meta"), [torch.empty(shape, dtype=layer.weight.dtype, device="meta")])
    for choices in ({SPLIT: True}, {SPLIT: True, "channels_last:conv2d": False}, dict[str, bool]()):
        found = [c.default for k, c in author(graph, choices).space.items() if k.startswith("pad:")]
        assert found == ([] if default is None else [default and len(choices) == 1])
