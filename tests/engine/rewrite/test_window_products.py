"""Convolutions whose windows tile the input as products: patches, transposed ones by phases, of one to three axes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hipwright.engine import author, space
from hipwright.engine.knobs import SPLIT
from tests.engine.capturing import captured
from tests.engine.harness import check
from tests.engine.template_builds import program_builds

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32


def drawn(*shape: int, dtype: torch.dtype = FULL) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def kind_of(layer: nn.Module) -> str:
    name = type(layer).__name__
    return f"conv_transpose{name[-2]}d" if "Transpose" in name else f"conv{name[-2]}d"


class Then(nn.Module):
    """A layer between two pointwise functions."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x * 0.5))


def product(layer: nn.Module, x: torch.Tensor, other: torch.Tensor | None = None, **how: Any) -> str:
    """The text of a program in which the layer is a product, whose values are right."""
    torch.manual_seed(3)
    layer.reset_parameters()
    kind = kind_of(layer)
    chosen = {f"product:{kind}": True, **how.pop("choices", {})}
    others = None if other is None else [other]
    products = ["aten.linear.default", "aten.matmul.default"]
    text = check(Then(layer), [x], choices=chosen, library=products, other=others, **how)
    assert "F.conv" not in text
    return text


PATCHES = [
    (nn.Conv2d(3, 24, 4, stride=4), (2, 3, 12, 8), (3, 3, 8, 20)),
    (nn.Conv2d(3, 20, (2, 5), stride=(2, 5), bias=False), (2, 3, 9, 16), (1, 3, 7, 14)),  # what no window holds is left
    (nn.Conv2d(40, 16, 2, stride=2, dtype=HALF), (2, 40, 6, 10), (3, 40, 5, 7)),
    (nn.Conv1d(5, 12, 8, stride=8, dtype=BRAIN), (3, 5, 40), (2, 5, 71)),
    (nn.Conv1d(4, 8, 6, stride=6, padding="valid"), (3, 4, 40), None),
    (nn.Conv3d(3, 16, (2, 4, 4), stride=(2, 4, 4), dtype=HALF), (2, 3, 4, 8, 12), (1, 3, 5, 9, 8)),
    (nn.Conv2d(3, 16, (1, 4), stride=(1, 4), dilation=(3, 1)), (2, 3, 3, 8), None),
]


@pytest.mark.parametrize(("layer", "shape", "other"), PATCHES)
def test_patches(layer: nn.Module, shape: tuple[int, ...], other: tuple[int, ...] | None) -> None:
    dtype = layer.weight.dtype
    product(layer, drawn(*shape, dtype=dtype), None if other is None else drawn(*other, dtype=dtype))


def test_rows_of_patches_are_read_where_they_lie_together() -> None:
    """The copy of the windows keeps their dimensions, so a row of a patch is a vector; the result is not turned."""

    class Embedding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 32, 16, stride=16, dtype=HALF)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.patches(x).flatten(2).transpose(1, 2) + 1

    chosen = {"product:conv2d": True, "call:conv2d_part6": "library"}
    text = check(Embedding(), [drawn(64, 3, 64, 64, dtype=HALF)], choices=chosen, library=["aten.linear.default"])
    assert ", 3, 16, 16), dtype=torch.float16)" in text and "F.linear(" in text
    forward = text[text.index("def forward") :]
    assert forward.count("torch.empty") == 1, "the windows; the sum takes the product's place"


TRANSPOSED = [
    (nn.ConvTranspose2d(16, 12, 2, stride=2), (2, 16, 5, 7), (3, 16, 4, 6)),
    (nn.ConvTranspose2d(8, 12, (3, 2), stride=(3, 2), bias=False, dtype=HALF), (2, 8, 5, 7), (1, 8, 3, 9)),
    (nn.ConvTranspose1d(16, 8, 16, stride=8, padding=4, dtype=HALF), (2, 16, 9), (3, 16, 14)),
    (nn.ConvTranspose1d(6, 8, 6, stride=2, padding=1, output_padding=1), (2, 6, 9), (1, 6, 1)),
    (nn.ConvTranspose1d(8, 4, 4, stride=4, padding=3, dtype=BRAIN), (2, 8, 9), (3, 8, 6)),
    (nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1, dtype=HALF), (2, 8, 5, 7), (1, 8, 8, 3)),
    (nn.ConvTranspose2d(6, 5, (4, 3), stride=(2, 3), padding=(0, 1)), (2, 6, 5, 4), None),
    (nn.ConvTranspose2d(6, 4, (3, 4), stride=(1, 2), padding=1, bias=False), (2, 6, 4, 5), (3, 6, 7, 2)),
    (nn.ConvTranspose3d(6, 4, 2, stride=2), (2, 6, 3, 4, 5), (1, 6, 2, 3, 3)),
    (nn.ConvTranspose3d(4, 4, (2, 4, 2), stride=2, padding=(0, 1, 1), dtype=HALF), (1, 4, 3, 4, 3), None),
]


@pytest.mark.parametrize(("layer", "shape", "other"), TRANSPOSED)
def test_transposed(layer: nn.Module, shape: tuple[int, ...], other: tuple[int, ...] | None) -> None:
    dtype = layer.weight.dtype
    product(layer, drawn(*shape, dtype=dtype), None if other is None else drawn(*other, dtype=dtype))


def test_phases_of_windows_are_three_passes() -> None:
    """The image is turned once, its windows are copied, the kernel that turns the result crops it and adds the bias.

    The weights are made in `prepare`.
    """
    layer = nn.ConvTranspose1d(64, 32, 16, stride=8, padding=4, dtype=HALF)
    chosen = {"call:conv_transpose1d_part11": "library"}
    text = product(layer, drawn(2, 64, 64, dtype=HALF), drawn(3, 64, 40, dtype=HALF), choices=chosen, wave=32)
    prepared, forward = text[text.index("def prepare") :].split("def forward")
    assert prepared.count("torch.empty") == 1 and "self.layer.weight" not in forward
    assert forward.count("torch.empty") == 3 and forward.count("F.linear(") == 1


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 768, 16, stride=16), (4, 3, 64, 64)),
        (nn.Conv3d(3, 256, (2, 16, 16), stride=(2, 16, 16), dtype=BRAIN), (2, 3, 4, 64, 64)),
        (nn.ConvTranspose1d(512, 256, 16, stride=8, padding=4, dtype=HALF), (4, 512, 64)),
        (nn.ConvTranspose2d(64, 64, 2, stride=2, dtype=HALF), (4, 64, 32, 32)),
    ],
)
def test_products_build_without_scratch(layer: nn.Module, shape: tuple[int, ...]) -> None:
    graph = captured(Then(layer), [torch.empty(shape, dtype=layer.weight.dtype)])
    program = author(graph, {SPLIT: True, f"product:{kind_of(layer)}": True}).program
    program_builds(program, lambda target: 2)


REFUSED = [
    nn.Conv2d(4, 8, 2, stride=2, groups=2),
    nn.Conv2d(4, 8, 2, stride=2, padding=1),
    nn.Conv2d(4, 8, 2, stride=2, dilation=2),
    nn.Conv2d(4, 8, (2, 3), stride=2),
    nn.Conv2d(4, 8, 1),
    nn.Conv2d(4, 8, 3, padding="same"),
    nn.Conv2d(4, 8, 2, stride=2, dtype=torch.float64),
    nn.ConvTranspose2d(4, 8, 3, stride=2, padding=1),
    nn.ConvTranspose2d(4, 8, 2, stride=2, groups=2),
    nn.ConvTranspose2d(4, 8, 2, stride=2, dilation=2),
    nn.ConvTranspose2d(4, 8, 2, stride=2, output_padding=1),
    nn.ConvTranspose2d(4, 8, 3, stride=1),
]


@pytest.mark.parametrize("layer", REFUSED)
def test_what_is_no_product(layer: nn.Module) -> None:
    graph = captured(Then(layer), [drawn(2, 4, 8, 9, dtype=layer.weight.dtype)])
    assert not [key for key in space(graph) if key.startswith("product:")]


def test_an_image_without_a_batch_is_no_product() -> None:
    graph = captured(Then(nn.Conv2d(4, 8, 2, stride=2)), [drawn(4, 8, 8)])
    assert not [key for key in space(graph) if key.startswith("product:")]


DEFAULTS = [
    (nn.Conv2d(3, 768, 16, stride=16, dtype=HALF), (16, 3, 224, 224), True),
    (nn.Conv2d(3, 768, 16, stride=16), (16, 3, 224, 224), True),
    (nn.Conv2d(3, 96, 4, stride=4, dtype=HALF), (16, 3, 224, 224), False),  # few terms
    (nn.Conv2d(256, 512, 2, stride=2, dtype=HALF), (16, 256, 28, 28), False),  # channels enough for the library
    (nn.Conv2d(3, 768, 16, stride=16, dtype=HALF), (1, 3, 32, 32), False),  # little work
    (nn.ConvTranspose1d(512, 256, 16, stride=8, padding=4, dtype=HALF), (16, 512, 256), True),
    (nn.ConvTranspose2d(512, 256, 2, stride=2, dtype=HALF), (8, 512, 32, 32), True),
    (nn.ConvTranspose2d(512, 256, 2, stride=2, dtype=HALF), (8, 512, 31, 33), False),  # rows of odd lengths
    (nn.ConvTranspose2d(512, 256, 4, stride=2, padding=1, dtype=HALF), (8, 512, 32, 32), False),
    (nn.ConvTranspose2d(512, 256, 2, stride=2), (8, 512, 32, 32), False),  # split products of convolutions
]


@pytest.mark.parametrize(("layer", "shape", "default"), DEFAULTS)
def test_default_rule(layer: nn.Module, shape: tuple[int, ...], default: bool) -> None:
    graph = captured(Then(layer), [torch.empty(shape, dtype=layer.weight.dtype)])
    key = f"product:{kind_of(layer)}"
    assert author(graph, {SPLIT: True}).space[key].default == default
    assert author(graph).space[key].default is False, "measured on no other GPU"
    off = author(
        graph, {SPLIT: True, key: False, f"image:{kind_of(layer)}": False, f"pad:{kind_of(layer)}": False}
    ).program.text
    assert f"{kind_of(layer)}_part" not in off
