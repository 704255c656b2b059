"""Convolutions of one dimension in half types as those of images of one row, which the library reads channels last."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.engine.harness import check

HALF, BRAIN = torch.float16, torch.bfloat16
LAYERS = [
    (nn.Conv1d(16, 32, 3, padding=1, dtype=HALF), (2, 16, 40), (3, 16, 29)),
    (nn.Conv1d(24, 16, 4, stride=3, dilation=2, bias=False, dtype=BRAIN), (2, 24, 33), None),
    (nn.ConvTranspose1d(16, 24, 3, stride=2, padding=1, output_padding=1, dtype=HALF), (2, 16, 20), (1, 16, 31)),
    (nn.ConvTranspose1d(16, 16, 2, dilation=3, bias=False, dtype=HALF), (2, 16, 24), None),
]


def drawn(layer: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5)).to(next(layer.parameters()).dtype)


@pytest.mark.parametrize(("layer", "shape", "other"), LAYERS)
def test_the_library_reads_an_image_of_one_row(
    layer: nn.Module, shape: tuple[int, ...], other: tuple[int, ...] | None
) -> None:
    transposed = isinstance(layer, nn.ConvTranspose1d)
    node = "conv_transpose1d" if transposed else "conv1d"
    op = "aten.conv_transpose2d.input" if transposed else "aten.conv2d.default"
    given = drawn(layer, shape)
    others = None if other is None else [drawn(layer, other)]
    choices = {f"image:{node}": True, f"call:{node}_part3": "library", f"channels_last:{node}_part3": True}
    text = check(layer, [given], choices=choices, library=[op], other=others)
    assert ".permute(0, 3, 1, 2)" in text and f"F.{node[:-2]}2d(" in text


def test_products_and_groups_stay_convolutions_of_one_dimension() -> None:
    for layer in (nn.Conv1d(16, 32, 1, dtype=HALF), nn.Conv1d(32, 32, 3, groups=2, dtype=HALF), nn.Conv1d(16, 16, 3)):
        given = drawn(layer, (2, layer.in_channels, 24))
        text = check(layer, [given], choices={"call:conv1d": "library"}, library=["aten.conv1d.default"])
        assert "F.conv1d(" in text
