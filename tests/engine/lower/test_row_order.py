"""Norms of rows that lie across memory read a copy by tiles; those that lie along it, or beside each other, do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from hipwright.engine.authoring import author
from hipwright.engine.lower import row_order
from tests.engine.harness import Op, captured, check

Function = Callable[[torch.Tensor], torch.Tensor]
NORMS: dict[str, Function] = {
    "layer": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-5),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_order, "LARGE", 1024)


def by_frames(x: torch.Tensor) -> torch.Tensor:
    """[videos * 7, channels, height, width] -> [videos * pixels, 7, channels]."""
    return x.view(-1, 7, x.shape[1], x.shape[2] * x.shape[3]).permute(0, 3, 1, 2).reshape(-1, 7, x.shape[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("norm", NORMS)
def test_rows_across_memory_are_copied_by_tiles(norm: str, dtype: torch.dtype) -> None:
    drawn = torch.Generator().manual_seed(0)
    x, other = (torch.randn(*shape, generator=drawn).to(dtype) for shape in ((14, 40, 6, 8), (7, 40, 2, 3)))
    model = Op(lambda x: NORMS[norm](by_frames(x)))
    name = next(k for k in author(captured(model, [x]), {}).space if k.startswith("map:") and "_rows" in k)
    text = check(model, [x], other=[other], choices={name: "transpose"})
    assert "TRANSPOSE_TILE" in text


ALONG: dict[str, Function] = {
    "contiguous": lambda x: x,
    "heads": lambda x: x.transpose(0, 1),
    "channels first": lambda x: x.permute(0, 2, 1),
    "sum": lambda x: x + x.flip(0),
}


@pytest.mark.parametrize("name", ALONG)
def test_rows_along_memory_or_side_by_side_are_read_where_they_are(name: str) -> None:
    x = torch.randn(12, 40, 48, generator=torch.Generator().manual_seed(0))
    text = check(Op(lambda x: F.layer_norm(ALONG[name](x), ALONG[name](x).shape[-1:])), [x])
    assert "_rows_kernel" not in text


@pytest.mark.parametrize(("images", "copied"), [(3, True), (64, False)])
def test_few_groups_of_channels_last_images_are_copied(images: int, copied: bool) -> None:
    """Of many, neighbouring threads take neighbouring groups where they lie."""
    model = Op(lambda x: F.group_norm(x.permute(0, 3, 1, 2).relu(), 4))
    given = torch.Generator().manual_seed(0)
    x, other = (torch.randn(images, *size, 16, generator=given) for size in ((9, 16), (5, 18)))
    text = check(model, [x], other=[other])
    assert ("group_norm_rows" in text) == copied


@pytest.mark.parametrize(("channels", "copied"), [(24, True), (4, False)])
def test_a_softmax_over_the_channels_of_a_channels_last_image_reads_a_copy(channels: int, copied: bool) -> None:
    """Its results lie along the image's rows; few channels share a transaction."""
    model = Op(lambda x: x.permute(0, 3, 1, 2).relu().log_softmax(1))
    given = torch.Generator().manual_seed(0)
    x, other = (torch.randn(*size, channels, generator=given) for size in ((5, 9, 16), (2, 5, 18)))
    assert ("log_softmax_rows" in check(model, [x], other=[other])) == copied


def test_small_tensors_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_order, "LARGE", 1 << 22)
    text = check(Op(lambda x: F.layer_norm(by_frames(x), (40,))), [torch.randn(14, 40, 6, 8)])
    assert "_rows_kernel" not in text
