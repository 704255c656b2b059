"""Norms that are stored in another order than they are read: for a product, by their own kernel, which saves a launch;
and of channels-first images channels last, by blocks that turn their columns around.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hipwright.engine import explain
from hipwright.engine.authoring import author
from tests.engine.harness import Op, captured, check

TURNED = "store_turned_columns<"


class Across(nn.Module):
    """A linear layer over the tokens of a norm over features."""

    def __init__(self, tokens: int, width: int, heads: bool = False) -> None:
        super().__init__()
        self.norm, self.across, self.heads = nn.LayerNorm(width), nn.Linear(tokens, tokens), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.norm(x).transpose(1, 2)
        return torch.exp(turned) if self.heads else nn.functional.gelu(self.across(turned))


@pytest.mark.parametrize("wave", [32, 64])
def test_two_launches(wave: int) -> None:
    torch.manual_seed(0)
    model, x = Across(9, 20), torch.randn(3, 9, 20)
    text = check(model, [x], choices={"call:linear": "gemm"}, wave=wave, other=[torch.randn(5, 9, 20)])
    assert len(explain(captured(model, [x]), {"call:linear": "gemm"})["kernels"]) == 2
    assert "layer_norm_mean" not in text[text.index("def forward") :]


def test_large_norms_and_other_readers_are_stored_transposed() -> None:
    large = explain(captured(Across(64, 64), [torch.empty(128, 64, 64)]), {"call:linear": "gemm"})["kernels"]
    assert len(large) == 3
    assert len(explain(captured(Across(9, 20, heads=True), [torch.empty(3, 9, 20)]))["kernels"]) <= 2


# ---------------------------------------------------------------- channels last


def by_columns(model: torch.nn.Module, x: torch.Tensor, cache: str = "registers") -> dict[str, str]:
    """The choices by which kernels reduce columns, also where rows would be the default of so few."""
    wanted = {"map": "columns", "row_cache": cache}
    offered = author(captured(model, [x])).space
    made = {key: wanted[key.partition(":")[0]] for key in offered if key.partition(":")[0] in wanted}
    assert made
    return made


class LastNorm(torch.nn.Module):
    """The norm of each pixel, as the layer behind a convolution has it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(channels)
        torch.nn.init.normal_(self.norm.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.permute(0, 2, 3, 1)) * 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 64, 8, 12), (3, 20, 5, 7), (1, 3, 16, 16), (2, 200, 3, 11)], ids=str)
def test_a_norm_is_stored_as_rows(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    model, x = LastNorm(shape[1]).to(dtype), torch.randn(shape, dtype=dtype)
    assert TURNED in check(model, [x], choices=by_columns(model, x))


def test_lines_and_waves_of_another_size() -> None:
    model, x = LastNorm(24), torch.randn(2, 24, 6, 10)
    assert TURNED in check(model, [x], wave=32, other=[torch.randn(3, 24, 7, 9)], choices=by_columns(model, x))


@pytest.mark.parametrize("cache", ["registers", "reload"])
def test_a_softmax_of_a_transposed_matrix(cache: str) -> None:
    model, x = Op(lambda x: F.softmax(x.transpose(1, 2), dim=-1)), torch.randn(3, 330, 50)
    assert TURNED in check(model, [x], choices=by_columns(model, x, cache))


def test_channels_first_results_are_stored_as_columns() -> None:
    model, x = Op(lambda x: F.softmax(x, dim=1) + 1.0), torch.randn(3, 40, 6, 8)
    text = check(model, [x], choices=by_columns(model, x))
    assert TURNED not in text and "store_columns<" in text
