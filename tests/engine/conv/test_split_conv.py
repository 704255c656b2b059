"""Float32 convolutions in two half parts: windows, strides, groups, phases and layouts, on every matrix unit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hipwright.engine import write
from hipwright.toolchain.cpu.sides import Side
from tests.engine.gemm.test_gemm import chosen, draw
from tests.engine.harness import captured, compare, reference, run
from tests.engine.template_builds import program_builds

SIDES: list[tuple[int, Side]] = [(64, "amd"), (32, "nvidia"), (64, "")]


def convolved(layer: nn.Module, x: torch.Tensor, side: Side = "", wave: int = 64) -> None:
    written = write(captured(layer, [x]), chosen(layer, [x], "split", SPLIT_N=64))
    assert "SplitTile" in written.text
    expected, native, _ = reference(layer, [x])
    got, _ = run(written, layer, [x], wave=wave, side=side)
    compare(got, expected, native)


@pytest.mark.matrix(keep=4)
@pytest.mark.parametrize(("wave", "side"), SIDES)
@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.Conv2d(16, 70, 3, padding=1), (9, 11)),
        (nn.Conv2d(40, 24, 3, stride=2), (10, 9)),
        (nn.Conv2d(32, 64, 1, bias=False), (5, 7)),
        (nn.Conv2d(24, 48, (3, 1), padding=(2, 0), dilation=(2, 1), groups=2), (8, 6)),
        (nn.Conv1d(33, 30, 5, padding=2), (19,)),
        (nn.Conv3d(12, 24, 3, padding=1, stride=(1, 2, 1)), (4, 5, 3)),
        (nn.ConvTranspose2d(16, 32, 4, stride=2, padding=1), (5, 6)),
        (nn.ConvTranspose2d(16, 32, 3, stride=2, padding=1, output_padding=1), (5, 4)),
        (nn.ConvTranspose1d(12, 24, 5, padding=1, dilation=2), (9,)),
        (nn.ConvTranspose2d(24, 48, (3, 5), stride=(3, 1), groups=2), (3, 7)),
    ],
    ids=lambda value: None if isinstance(value, tuple) else str(value)[:40],
)
def test_windows(layer: nn.Module, size: tuple[int, ...], wave: int, side: Side) -> None:
    """Partial chunks and tiles, with an epilogue."""
    model = nn.Sequential(layer, nn.GELU())
    channels = layer.in_channels
    convolved(model, draw(2, channels, *size), side, wave)


@pytest.mark.parametrize(
    ("layer", "size", "side"),
    [
        (nn.ConvTranspose3d(12, 24, (4, 5, 5), padding=1), (2, 3, 2), "nvidia"),
        (nn.Conv2d(12, 24, (3, 33), padding=(1, 16), stride=(1, 2), dilation=(2, 1)), (5, 40), "amd"),
    ],
)
def test_windows_of_more_taps_than_a_mask_has_bits(layer: nn.Module, size: tuple[int, ...], side: Side) -> None:
    """A bit for each place along an axis, in masks of 32 and 64."""
    convolved(nn.Sequential(layer, nn.GELU()), draw(2, 12, *size), side, 32)


@pytest.mark.parametrize(
    ("layer", "size", "side"),
    [
        (nn.Conv1d(32, 48, 128, padding=64, groups=2), (90,), "nvidia"),
        (nn.Conv1d(12, 24, 97, stride=3, dilation=2, padding=100), (40,), "amd"),
        (nn.Conv2d(12, 24, (2, 65), padding=(1, 32)), (3, 20), ""),
        (nn.ConvTranspose1d(12, 24, 70, padding=5), (9,), "nvidia"),
        (nn.ConvTranspose1d(12, 24, 140, stride=2, padding=3), (30,), "amd"),
    ],
)
def test_windows_longer_along_an_axis_than_a_mask_has_bits(layer: nn.Module, size: tuple[int, ...], side: Side) -> None:
    """A range of taps along each axis."""
    convolved(nn.Sequential(layer, nn.GELU()), draw(2, layer.in_channels, *size), side, 32)


def test_channels_last_images() -> None:
    """Inputs whose channels are neighbours in memory, and a prologue."""

    class Permuted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 32, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(torch.relu(x).permute(0, 3, 1, 2))

    convolved(Permuted(), draw(2, 6, 5, 16), "amd")


def test_images_of_very_different_sizes() -> None:
    """Each image has a scale of its own; within one, numbers differ by 2^20."""
    x = draw(3, 16, 6, 6) * torch.tensor([1e-20, 1.0, 1e20])[:, None, None, None]
    x[1, 3] *= 2.0**20
    layer = nn.Conv2d(16, 24, 3, padding=1, bias=False)
    written = write(captured(layer, [x]), chosen(layer, [x], "split", SPLIT_N=64))
    got, _ = run(written, layer, [x], wave=32, side="nvidia")
    exact = layer.double()(x.double())
    sizes = nn.functional.conv2d(x.double().abs(), layer.weight.double().abs(), padding=1)
    assert ((got - exact).abs() / sizes).max() < 2.0**-20


def test_infinities_are_those_of_float32() -> None:
    x = draw(1, 16, 5, 5)
    x[0, 2, 1, 1], x[0, 3, 4, 4] = float("inf"), float("nan")
    layer = nn.Conv2d(16, 24, 3, padding=1)
    written = write(captured(layer, [x]), chosen(layer, [x], "split", SPLIT_N=64))
    got, _ = run(written, layer, [x], wave=64, side="amd")
    with torch.no_grad():
        torch.testing.assert_close(got, layer(x), equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [nn.Conv2d(64, 128, 3, padding=1), nn.ConvTranspose2d(64, 128, 4, stride=2)])
def test_every_gpu_compiles_it(layer: nn.Module) -> None:
    x = torch.empty(8, 64, 32, 32)
    program_builds(write(captured(layer, [x]), chosen(layer, [x], "split")), lambda target: 1)


@pytest.mark.parametrize(("wave", "side"), SIDES)
@pytest.mark.parametrize("layer", [nn.Conv2d(40, 70, 3, padding=1), nn.ConvTranspose2d(128, 70, 4, stride=2)])
def test_slices_of_channels_and_taps(layer: nn.Module, wave: int, side: Side) -> None:
    """Blocks share a tile of windows, with uneven slices, phases and groups."""
    model, x = nn.Sequential(layer, nn.GELU()), draw(2, layer.in_channels, 7, 9)
    graph = captured(model, [x])
    choices = chosen(model, [x], "split", SPLIT_N=64)
    written = write(graph, {**choices, "call:conv2d:slices": 2, "call:conv_transpose2d:slices": 2})
    assert "product.combine" in written.text
    got, _ = run(written, model, [x], wave=wave, side=side)
    expected, native, _ = reference(model, [x])
    compare(got, expected, native)
