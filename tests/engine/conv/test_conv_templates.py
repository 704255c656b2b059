"""Convolutions as stencils: values over shapes, strides, dilations, groups and dtypes; AMD and NVIDIA builds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain, space
from tests.engine.harness import captured, check, kernels_in
from tests.engine.template_builds import builds


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)


class Then(nn.Module):
    """A layer, then pointwise operators."""

    def __init__(self, layer: nn.Module, then: Any = torch.relu, before: Any = None) -> None:
        super().__init__()
        self.layer, self.then, self.before = layer, then, before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(self.before(x) if self.before else x)
        return self.then(y) if self.then else y


def verify(model: nn.Module, x: torch.Tensor, tile: str, **kw: Any) -> str:
    """Checks that the stencil of this tile is correct and is one kernel without a library call."""
    torch.manual_seed(1)
    model = model.to(x.dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    keys = [k for k in space(captured(model, [x])) if k.startswith("call:") and k.count(":") == 1]
    choices = dict.fromkeys(keys, "stencil") | {f"{k}:tile": tile for k in keys} | kw.pop("choices", {})
    text = check(model, [x], choices=choices, **kw)
    assert f"tile {tile}" in text, text
    return text


PLAIN = [
    (nn.Conv2d(6, 6, 3, padding=1, groups=6), (2, 6, 11, 16), "1x4x4"),
    (nn.Conv2d(6, 6, 3, padding=1, groups=6), (2, 6, 11, 13), "1x4x2"),
    (nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4), (1, 4, 12, 16), "2x2x2"),
    (nn.Conv2d(5, 5, (5, 3), padding=(4, 2), dilation=2, groups=5, bias=False), (1, 5, 9, 10), "1x2x4"),
    (nn.Conv2d(3, 16, 7, stride=2, padding=3), (2, 3, 17, 19), "4x1x4"),
    (nn.Conv2d(3, 8, 3), (2, 3, 9, 12), "4x2x4"),
    (nn.Conv2d(6, 4, 3, padding="same", groups=2), (2, 6, 7, 8), "2x2x2"),
    (nn.Conv2d(22, 16, 1, groups=2), (3, 22, 7, 9), "8x2x1"),  # channels in steps of four and a rest
    (nn.Conv2d(20, 24, 1, stride=2, groups=4, bias=False), (2, 20, 9, 16), "2x1x4"),
    (nn.Conv2d(2, 2, 4, padding="same"), (1, 2, 9, 9), "1x1x1"),
    (nn.Conv2d(2, 2, 31, padding=15, groups=2), (1, 2, 33, 20), "1x1x4"),
    (nn.Conv2d(2, 2, 7, padding=3, groups=2), (1, 2, 9, 16), "1x4x8"),  # more than any rule unrolls
    (nn.Conv2d(3, 4, 3, padding=1), (3, 8, 8), "4x1x2"),
    (nn.Conv1d(4, 4, 5, padding=2, groups=4), (3, 4, 37), "1x1x4"),
    (nn.Conv1d(2, 8, 9, stride=4, padding=1), (3, 2, 64), "8x1x2"),
    (nn.Conv3d(2, 4, (3, 5, 2), padding=(1, 2, 0), stride=(2, 1, 1)), (2, 2, 5, 6, 8), "4x2x2"),
    (nn.Conv3d(4, 4, 3, padding=1, groups=4), (1, 4, 4, 7, 8), "1x2x4"),
]
TRANSPOSED = [
    (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 7, 8), "2x2x4"),
    (nn.ConvTranspose2d(4, 4, 4, stride=2, padding=1, groups=4), (2, 4, 5, 6), "1x2x2"),
    (nn.ConvTranspose2d(3, 2, 5, stride=3, padding=2, dilation=2), (1, 3, 5, 6), "2x3x3"),
    (nn.ConvTranspose2d(4, 4, 2, stride=3, groups=2, bias=False), (1, 4, 4, 4), "2x3x6"),
    (nn.ConvTranspose1d(3, 4, 7, stride=2, padding=3, output_padding=1), (2, 3, 19), "4x1x4"),
    (nn.ConvTranspose3d(2, 4, (3, 5, 3), stride=(2, 1, 2), padding=(1, 2, 1)), (1, 2, 3, 5, 6), "4x2x4"),
    (nn.ConvTranspose2d(3, 4, 3), (1, 3, 6, 7), "4x2x2"),
]


@pytest.mark.parametrize(("layer", "shape", "tile"), [*PLAIN, *TRANSPOSED])
@pytest.mark.matrix(keep=3)
def test_values(layer: nn.Module, shape: tuple[int, ...], tile: str) -> None:
    verify(Then(layer), draw(*shape), tile)


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("which", [0, 4])
def test_dtypes(dtype: torch.dtype, which: int) -> None:
    layer, shape, tile = PLAIN[which]
    verify(Then(layer), draw(*shape, dtype=dtype), tile)


@pytest.mark.parametrize(("dtype", "usual"), [(torch.bfloat16, "1x4x8"), (torch.float32, "1x2x4")])
def test_wide_tiles(dtype: torch.dtype, usual: str) -> None:
    """32 outputs of a 7 x 7 window: the default of half types, and offered to others."""
    x = torch.empty(64, 96, 56, 56, dtype=dtype, device="meta")
    layer = nn.Conv2d(96, 96, 7, padding=3, groups=96, dtype=dtype, device="meta")
    tile = space(captured(Then(layer, None), [x]))["call:conv2d:tile"]
    assert "1x4x8" in tile.options and "1x8x8" not in tile.options and tile.default == usual


def test_prologue_and_epilogue_fuse() -> None:
    model = Then(nn.Conv2d(4, 4, 3, padding=1, groups=4), lambda y: F.silu(y) * 2, before=torch.relu)
    text = verify(model, draw(2, 4, 9, 8), "1x4x4", other=[draw(1, 4, 6, 9)])
    assert kernels_in(text) == 1
    assert "relu(vec.v[q])" in text


class Block(nn.Module):
    """A residual of the layer's own input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x) + x)


class Shuffled(nn.Module):
    """Convolutions of groups with norms of batches, and the channels shuffled between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(12, 8, 1, groups=2, bias=False), nn.BatchNorm2d(8)
        self.depthwise, self.last = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 12, 1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        y = y.view(y.shape[0], 2, 4, *y.shape[2:]).transpose(1, 2).reshape(y.shape)
        return torch.relu(x + self.last(self.depthwise(y)))


def test_shuffled_groups_are_stencils_without_a_copy() -> None:
    text = check(Shuffled(), [draw(2, 12, 7, 9)], other=[draw(3, 12, 5, 4)])
    assert "F.conv2d" not in text and text.count("#pragma unroll 4") >= 1
    assert kernels_in(text) == 5  # three convolutions, the norm, and the count of batches


def test_residual_and_other_shapes() -> None:
    text = verify(Block(), draw(2, 4, 8, 8), "1x2x4", other=[draw(3, 4, 5, 7)])
    assert kernels_in(text) == 1


@pytest.mark.parametrize("wave", [32, 64])
def test_whole_planes(wave: int) -> None:
    model = Then(nn.Conv2d(3, 4, 3, padding=1))
    text = verify(
        model, draw(2, 3, 32, 40), "4x1x1", wave=wave, choices={"call:conv2d:grid": "plane", "STENCIL_BLOCK": 64}
    )
    assert "the same for the whole block" in text


def test_unaligned_rows_are_read_by_elements() -> None:
    """A view that does not begin at a multiple of 16 bytes."""
    model = Then(nn.Conv2d(4, 4, 3, padding=1, groups=4)).eval()
    x = draw(1 + 2 * 4 * 8 * 8)[1:].view(2, 4, 8, 8)
    text = verify(model, x, "1x2x4")
    assert "is_wide_aligned<4>(x)" in text


@pytest.mark.parametrize(
    ("layer", "shape", "default"),
    [
        (nn.Conv2d(32, 32, 3, groups=32), (2, 32, 16, 16), "stencil"),
        (nn.Conv2d(64, 64, 3), (2, 64, 16, 16), "library"),
        (nn.Conv2d(3, 64, 3), (2, 3, 16, 16), "stencil"),
        (nn.Conv3d(8, 16, 3), (2, 8, 6, 8, 8), "stencil"),
        (nn.ConvTranspose2d(64, 64, 3, stride=2), (2, 64, 8, 8), "library"),
    ],
)
def test_default_rule(layer: nn.Module, shape: tuple[int, ...], default: str) -> None:
    graph = captured(Then(layer, None), [draw(*shape)])
    (choice,) = [c for k, c in space(graph).items() if k.startswith("call:") and k.count(":") == 1]
    assert set(choice.options) >= {"library", "stencil"} and choice.default == default
    assert bool(explain(graph)["library"]) == (default == "library")


BIG = [
    (nn.Conv2d(64, 64, 3, padding=1, groups=64), (16, 64, 56, 56), torch.float32),
    (nn.Conv2d(64, 64, 7, padding=3, groups=64), (16, 64, 56, 56), torch.float16),
    (nn.Conv2d(3, 32, 7, stride=2, padding=3), (16, 3, 112, 112), torch.float32),
    (nn.Conv3d(4, 8, 3, padding=1), (8, 4, 16, 32, 32), torch.float32),
    (nn.ConvTranspose2d(16, 16, 5, stride=2, padding=2, output_padding=1), (16, 16, 56, 56), torch.bfloat16),
    (nn.ConvTranspose3d(4, 8, (3, 5, 7), stride=2, padding=1), (4, 4, 16, 16, 16), torch.float32),
    (nn.Conv1d(64, 64, 31, padding=15, groups=64), (16, 64, 4096), torch.float32),
]


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(("layer", "shape", "dtype"), BIG)
def test_builds(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    builds(Then(layer.to(dtype)), [torch.empty(shape, dtype=dtype)])
