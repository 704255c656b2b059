"""Reductions of a convolution's channels: begun in its kernel, right for every unit, axis count and NaN."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import author, write
from hipwright.toolchain.cpu.sides import Side
from tests.engine.harness import captured, compare, reference, run
from tests.engine.template_builds import program_builds

UNITS: list[tuple[int, Side]] = [(64, "amd"), (32, "amd"), (32, "nvidia"), (64, "")]


class Reduced(nn.Module):
    """A convolution and what its channels come to."""

    def __init__(self, conv: nn.Module, ending: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.conv, self.ending = conv, ending

    def forward(self, x: torch.Tensor) -> Any:
        return self.ending(self.conv(x))


ENDINGS: dict[str, Callable[[torch.Tensor], Any]] = {
    "minimum": lambda y: torch.tanh(torch.tanh(y.amin(dim=1, keepdim=True))),
    "exponentials": lambda y: torch.logsumexp(F.hardswish(y), dim=1, keepdim=True),
    "classes": lambda y: y.argmax(1),
    "value and place": lambda y: torch.max(y * 2, 1),
    "mean": lambda y: F.relu(y).mean(dim=1),
}


def written_for(model: nn.Module, x: torch.Tensor) -> Any:
    graph = captured(model, [x])
    calls = [key for key in author(graph, {}).space if key.startswith("call:") and key.count(":") == 1]
    written = write(graph, dict.fromkeys(calls, "split"))
    assert "SplitTile" in written.text and re.search(r"_(tiles|places) = torch.empty", written.text), written.text
    return written


@pytest.mark.matrix(keep=7)
@pytest.mark.parametrize("kind", ENDINGS)
@pytest.mark.parametrize(("wave", "side"), UNITS)
@pytest.mark.parametrize("outputs", [130, 70])
def test_channels_of_any_number(kind: str, outputs: int, wave: int, side: Side) -> None:
    model = Reduced(nn.Conv2d(16, outputs, 3, padding=1), ENDINGS[kind])
    x = torch.randn(2, 16, 9, 8)
    got, _ = run(written_for(model, x), model, [x], wave=wave, side=side)
    expected, native, _ = reference(model, [x])
    compare(got, expected, native)


@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.Conv1d(20, 150, 5, stride=2), (3, 20, 41)),
        (nn.Conv3d(12, 70, 2, bias=False), (1, 12, 4, 5, 6)),
        (nn.ConvTranspose2d(16, 70, 3), (2, 16, 4, 5)),
    ],
    ids=["one axis", "three axes", "transposed"],
)
def test_other_convolutions(conv: nn.Module, shape: tuple[int, ...]) -> None:
    model, x = Reduced(conv, ENDINGS["value and place"]), torch.randn(shape)
    got, _ = run(written_for(model, x), model, [x], wave=32, side="nvidia")
    expected, native, _ = reference(model, [x])
    compare(got, expected, native)


@pytest.mark.parametrize("kind", ENDINGS)
def test_nan_and_infinity_are_as_in_a_row(kind: str) -> None:
    model = Reduced(nn.Conv2d(16, 70, 1), ENDINGS[kind])
    x = torch.randn(1, 16, 6, 6)
    x[0, 3, 1, 1], x[0, 2, 4, 4] = float("nan"), float("inf")
    got, _ = run(written_for(model, x), model, [x], wave=32, side="nvidia")
    expected, native, _ = reference(model, [x])
    compare(got, expected, native)


@pytest.mark.parametrize(
    "conv",
    [nn.Conv2d(24, 140, 3, groups=2), nn.ConvTranspose2d(16, 70, 4, stride=2), nn.Conv2d(16, 64, 3)],
    ids=["groups", "phases", "few outputs"],
)
def test_others_store_their_result(conv: nn.Module) -> None:
    model, x = Reduced(conv, ENDINGS["minimum"]), torch.randn(1, conv.in_channels, 6, 6)  # type: ignore[arg-type,call-overload]
    graph = captured(model, [x])
    calls = [key for key in author(graph, {}).space if key.startswith("call:") and key.count(":") == 1]
    written = write(graph, dict.fromkeys(calls, "split"))
    assert "SplitTile" in written.text and not re.search(r"_(tiles|places) = torch.empty", written.text)
    got, _ = run(written, model, [x], wave=32, side="nvidia")
    expected, native, _ = reference(model, [x])
    compare(got, expected, native)


def test_it_builds_for_every_target_without_scratch() -> None:
    model = Reduced(nn.Conv2d(64, 128, 3), ENDINGS["exponentials"])
    program_builds(written_for(model, torch.randn(2, 64, 16, 16)), lambda target: 1)
