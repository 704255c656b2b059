"""Running sums of unpacked bits are counted in the words that hold them, where they are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hipwright.engine import author
from tests.engine.capturing import captured
from tests.engine.harness import Op, check, kernels_in
from tests.engine.template_builds import program_builds


def _bits(bitmap: torch.Tensor) -> torch.Tensor:
    return ((bitmap.int().unsqueeze(-1) >> torch.arange(8, dtype=torch.int32)) & 1).flatten(-2)


def _expanded(bitmap: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    bits = _bits(bitmap)
    place = (bits.cumsum(dim=-1) - 1).clamp(0, kept.shape[-1] - 1)
    return torch.where(bits > 0, kept.gather(-1, place), 0.0)


class Pinned(Op):
    """A function of rows of so many bytes."""

    def __init__(self, function: Callable[..., torch.Tensor], size: int = 8) -> None:
        super().__init__(function)
        self.size = size

    def forward(self, *x: torch.Tensor) -> torch.Tensor:
        assert x[0].shape[-1] == self.size
        out: torch.Tensor = self.function(*x)
        return out


class Expanded(torch.nn.Module):
    """The expansion of rows whose length is part of the module."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, bitmap: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        assert bitmap.shape[-1] * 8 == self.size
        return _expanded(bitmap, kept)


def _attended(
    q: torch.Tensor, a: torch.Tensor, keys: torch.Tensor, b: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    scores = q.float() @ _expanded(a, keys).float().transpose(-1, -2) * 0.1
    return torch.softmax(scores, dim=-1) @ _expanded(b, values).float()


def _compressed(*shape: int, size: int) -> list[torch.Tensor]:
    bitmap = torch.randint(0, 256, (*shape, size // 8), dtype=torch.uint8)
    return [bitmap, torch.randn(*shape, size, dtype=torch.bfloat16)]


def _attention_inputs(batch: int, rows: int, keys: int, size: int) -> list[torch.Tensor]:
    torch.manual_seed(size + keys)
    q = torch.randn(batch, rows, size, dtype=torch.bfloat16)
    return [q, *_compressed(batch, keys, size=size), *_compressed(batch, keys, size=size)]


@pytest.mark.parametrize("size", [32, 64, 128, 256])
@pytest.mark.parametrize("wave", [32, 64])
def test_expansion_is_one_kernel_that_counts_words(size: int, wave: int) -> None:
    torch.manual_seed(size)
    text = check(Expanded(size), _compressed(3, 5, size=size), wave=wave)
    assert kernels_in(text) == 1
    assert text.count("count_bits_up_to(") >= size // 32
    assert "scan_tile" not in text


@pytest.mark.parametrize("fill", [0, 255, 1, 128])
def test_rows_without_bits_and_full_rows(fill: int) -> None:
    bitmap, kept = _compressed(2, 3, size=64)
    check(Expanded(64), [torch.full_like(bitmap, fill), kept])


def test_bitmaps_at_any_address() -> None:
    bitmap, kept = _compressed(4, 3, size=64)
    for offset in range(1, 4):
        memory = torch.empty(bitmap.numel() + offset, dtype=torch.uint8)
        moved = memory[offset:].view(bitmap.shape).copy_(bitmap)
        assert "load_bit_word" in check(Expanded(64), [bitmap, kept], other=[moved, kept])


def test_rows_that_do_not_begin_at_words_are_scanned() -> None:
    bitmap, kept = _compressed(4, 3, size=64)
    wide = torch.cat([bitmap, bitmap], dim=-1)
    assert "load_bit_word" in check(Pinned(lambda x, y: _expanded(x[..., 8:], y), 16), [wide, kept])
    assert "load_bit_word" not in check(Pinned(lambda x, y: _expanded(x[..., 3:11], y), 16), [wide, kept])


@pytest.mark.parametrize("size", [24, 40, 264])
def test_other_widths_are_scanned(size: int) -> None:
    torch.manual_seed(size)
    text = check(Expanded(size), _compressed(3, 5, size=size))
    assert "count_bits_up_to" not in text
    assert "scan_tile" in text


def _from_the_other_end(bitmap: torch.Tensor) -> torch.Tensor:
    places = torch.arange(7, -1, -1, dtype=torch.int32)
    return ((bitmap.int().unsqueeze(-1) >> places) & 1).flatten(-2).cumsum(dim=-1)


def _two_bits(bitmap: torch.Tensor) -> torch.Tensor:
    return ((bitmap.int().unsqueeze(-1) >> torch.arange(8, dtype=torch.int32)) & 3).flatten(-2).cumsum(dim=-1)


def _along_rows(bitmap: torch.Tensor) -> torch.Tensor:
    return _bits(bitmap).cumsum(dim=0)


@pytest.mark.parametrize("function", [_from_the_other_end, _two_bits, _along_rows])
def test_other_orders_and_fields_are_scanned(function: Callable[..., torch.Tensor]) -> None:
    text = check(Pinned(function), _compressed(6, size=64)[:1])
    assert "count_bits_up_to" not in text


def test_bits_of_other_integers_are_scanned() -> None:
    words = torch.randint(-128, 127, (5, 8), dtype=torch.int8)
    text = check(Pinned(lambda x: _bits(x).cumsum(dim=-1)), [words])
    assert "count_bits_up_to" not in text


@pytest.mark.parametrize("shape", [(2, 4, 37, 64), (1, 1, 130, 128), (3, 8, 129, 32), (2, 5, 200, 96)])
@pytest.mark.parametrize("wave", [32, 64])
def test_attention_reads_compressed_keys_and_values(shape: tuple[int, ...], wave: int) -> None:
    inputs = _attention_inputs(*shape)
    graph = captured(Op(_attended), inputs)
    (node,) = (k for k in author(graph, {}).space if k.startswith("call:") and k.count(":") == 1)
    text = check(Op(_attended), inputs, choices={node: "split"}, wave=wave)
    assert kernels_in(text) == 2
    assert text.count("torch.empty") == 3, "statistics, partial sums and the result: nothing is expanded"
    stored = check(Op(_attended), inputs, choices={node: "split_stored"}, wave=wave)
    assert text != stored


def test_choices_without_counting_and_its_values() -> None:
    inputs = _attention_inputs(2, 4, 140, 64)
    text = check(Op(_attended), inputs, choices={"bit_ranks": False})
    assert "count_bits_up_to" not in text


def test_it_builds_without_scratch() -> None:
    graph = captured(Op(_attended), _attention_inputs(64, 4, 512, 128))
    program_builds(author(graph, {}).program, lambda target: 2)
