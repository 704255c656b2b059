"""Half convolutions of one tap as products of rows: values, what stays channels last around them, and the default."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hipwright.engine import space, write
from tests.engine.harness import captured, check

HALF = torch.float16
LIBRARY = ["aten.conv2d.default", "aten.linear.default"]


class Fire(nn.Module):
    """Few channels, then many by two kinds of convolutions, joined, pooled and read by another."""

    def __init__(self, channels: int = 32, dtype: torch.dtype = HALF) -> None:
        super().__init__()
        self.squeeze, self.point = (nn.Conv2d(channels, channels, 1) for _ in range(2))
        self.three = nn.Conv2d(channels, channels, 3, padding=1)
        self.last = nn.Conv2d(2 * channels, channels, 1, bias=False)
        self.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.squeeze(torch.sin(x)))
        x = torch.cat([F.relu(self.point(x)), F.relu(self.three(x))], 1)
        return torch.tanh(self.last(F.max_pool2d(x, 3, 2, 1))).mean((2, 3))


class Inception(nn.Module):
    """Convolutions of one tap that read what a convolution of few channels leaves, before larger ones."""

    def __init__(self, branch: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, padding=1, dtype=HALF)
        self.points = nn.ModuleList(nn.Conv2d(64, branch, 1, dtype=HALF) for _ in range(2))
        self.larger = nn.ModuleList(nn.Conv2d(branch, 64, 3, padding=1, dtype=HALF) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(x))
        made = [F.relu(b(F.relu(a(x)))) for a, b in zip(self.points, self.larger, strict=True)]
        return torch.cat(made, 1).mean((2, 3))


class Residual(nn.Module):
    """Two convolutions beside one of a tap that skips positions."""

    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Conv2d(32, 32, 3, padding=1, dtype=HALF)
        self.first = nn.Conv2d(32, 64, 3, 2, 1, dtype=HALF)
        self.second = nn.Conv2d(64, 64, 3, 1, 1, dtype=HALF)
        self.skip = nn.Conv2d(32, 64, 1, 2, dtype=HALF)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.before(torch.sin(x)))
        return F.relu(self.second(F.relu(self.first(x))) + self.skip(x)).mean((2, 3))


class Points(nn.Module):
    """Convolutions of one tap alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(64, 64, 1, dtype=HALF) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def on_meta(model: nn.Module, *shape: int) -> Any:
    dtype = next(model.parameters()).dtype
    return captured(model.to("meta"), [torch.empty(shape, dtype=dtype, device="meta")])


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16])
def test_a_region_stays_channels_last(dtype: torch.dtype) -> None:
    """Nothing is permuted between the joined image, its pooling and the products; the image of two calls is one."""
    torch.manual_seed(0)
    choices = {f"last:conv2d{suffix}": True for suffix in ("", "_1", "_3")} | {"channels_last:conv2d_2": True}
    calls = {f"call:{name}": "library" for name in ("conv2d_part3", "conv2d_1_part3", "conv2d_3_part3", "conv2d_2")}
    images = [torch.randn(2, 32, *size, dtype=dtype) for size in ((9, 7), (6, 11))]
    text = check(Fire(dtype=dtype), images[:1], choices={**choices, **calls}, library=LIBRARY, other=images[1:])
    forward = text[text.index("def forward") :]
    assert forward.count("F.linear(") == 3 and "permute((0, 2, 3, 1))" not in forward, forward
    assert forward.count("_last = torch.empty") == 2, "the image, which comes as it is, and the pooling's result"
    assert "relu_view = conv2d_part3.permute(0, 3, 1, 2)" in forward and "x_2, x_3, 64)" in forward


DEFAULTS = [
    (Fire(), (64, 32, 65, 65), {"last:conv2d": True, "last:conv2d_1": True, "last:conv2d_3": True}),
    (Fire(), (1, 32, 8, 8), {"last:conv2d": False, "last:conv2d_1": False, "last:conv2d_3": False}),
    (Points(), (64, 64, 65, 65), {"last:conv2d": False, "last:conv2d_1": False}),
    (Inception(32), (32, 3, 64, 64), {"last:conv2d_1": True, "last:conv2d_3": True}),
    (Inception(16), (32, 3, 64, 64), {"last:conv2d_1": False, "last:conv2d_3": False}),
]


@pytest.mark.parametrize(("model", "shape", "wanted"), DEFAULTS)
def test_the_default_is_the_regions(model: nn.Module, shape: tuple[int, ...], wanted: dict[str, bool]) -> None:
    """One that lies channels last through a larger convolution; an image is turned where less is left so."""
    found = {key: choice.default for key, choice in space(on_meta(model, *shape)).items()}
    assert {key: value for key, value in found.items() if key.startswith("last:")} == wanted


def test_one_tap_that_skips_positions_reads_what_others_read() -> None:
    torch.manual_seed(0)
    names = ("conv2d", "conv2d_1", "conv2d_2", "conv2d_3")
    choices: dict[str, Any] = {f"channels_last:{name}": True for name in names}
    choices |= {f"call:{name}": "library" for name in names}
    x = torch.randn(2, 32, 9, 7, dtype=HALF)
    check(Residual(), [x], choices=choices, library=LIBRARY, other=[torch.randn(3, 32, 6, 8, dtype=HALF)])
    graph = on_meta(Residual(), 32, 32, 64, 64)
    text = write(graph).text
    assert space(graph)["call:conv2d_3"].default == "library"
    forward = text[text.index("def forward") :]
    assert forward.count("permute(0, 2, 3, 1).contiguous()") == 4 and forward.count("_last = torch.empty") == 1, forward
