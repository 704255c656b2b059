"""Norms and softmaxes over the channels of channels-first images whose results lie channels last."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine.authoring import author
from tests.engine.harness import Op, captured, check

TURNED = "store_turned_columns<"


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
