"""Bytes and bits converted to float: values on the processor, bit patterns as NVIDIA computes them, its
instructions.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from hipwright.engine import write
from hipwright.toolchain import device_headers
from tests.engine.gemm.test_packed_gemv import nibbles
from tests.engine.harness import Op, captured, check
from tests.engine.rows.test_half_type_rows import twin
from tests.engine.template_builds import builds

GEMV = {"call:matmul": "gemv"}


def rows(weight: Tensor, scale: Tensor, x: Tensor) -> Tensor:
    return (weight.to(x.dtype) @ x) * scale


def shifted(weight: Tensor, x: Tensor) -> Tensor:
    """A constant folded into the conversion, one that is no integer, and a conversion that is read twice."""
    a, b = (weight.to(x.dtype) - 3.0) @ x, (weight.to(x.dtype) + 0.5) @ x
    return torch.stack([a, b, (weight.to(x.dtype).square() - weight.to(x.dtype)) @ x])


def draw(dtype: torch.dtype, count: int, length: int, to: torch.dtype = torch.float32) -> list[Tensor]:
    make = torch.Generator().manual_seed(count + length)
    low, high = (-128, 128) if dtype == torch.int8 else (0, 256)
    weight = torch.randint(low, high, (count, length), dtype=dtype, generator=make)
    weight[0, :2] = torch.tensor([low, high - 1])
    return [weight, torch.rand(count, generator=make).to(to), torch.randn(length, generator=make).to(to)]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("wave", [32, 64])
def test_values(dtype: torch.dtype, wave: int) -> None:
    """Vectors, the tail of a row, and unaligned rows."""
    weight, scale, x = draw(dtype, 5, 1200, torch.float16)
    text = check(Op(rows), [weight, scale, x], choices=GEMV, wave=wave, other=draw(dtype, 3, 1001, torch.float16))
    assert "byte_to_float(" in text and "load_bytes<" in text
    weight, _, x = draw(dtype, 4, 900)
    check(Op(shifted), [weight, x], wave=wave)
    check(Op(lambda w: ((w & 7).float() - 4.0) * 2 + (w >> 2).float()), [weight], wave=wave)


def numbers(text: str, pattern: str) -> tuple[int, float]:
    bits, away = re.search(pattern, text).groups()  # type: ignore[union-attr]
    return int(bits, 16), float(away)


def test_bit_patterns() -> None:
    """The constant added to the bits and subtracted again: exact for each x and each integer that may be folded in."""
    small = numbers(device_headers.text("math"), r"(0x\w+) \+ x\) - \((\S+)f \+ offset")
    natural = numbers(device_headers.text("math"), r"(0x\w+) \| x\) - \((\S+)f \+ offset")
    least = np.float32([-(2**21), -128, -1, 0, 1, 8, 2**21])
    for (bits, away), low, combined in ((small, -(2**22) + 1, np.add), (natural, 0, np.bitwise_or)):
        x = np.unique(
            np.concatenate([np.arange(max(low, -300), 300), np.linspace(low, 2**22 - 1, 5000)]).astype(np.int32)
        )
        made = combined(np.int32(bits), x).view(np.float32)[:, None] - (np.float32(away) + least)
        assert made.dtype == np.float32 and np.array_equal(made, x[:, None].astype(np.float64) - least)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_bytes_of_words(dtype: type) -> None:
    """Byte k of a word, and above it the bits of 2^23, by __byte_perm's selector."""
    found = re.search(r"(0x4b\w+)u, (0x\w+) \|", device_headers.text("bytes"))
    bits, selector = (int(v, 16) for v in found.groups())  # type: ignore[union-attr]
    values = np.arange(256, dtype=np.uint8)
    words = values.view(np.uint32) ^ np.uint32(0x80808080 if dtype is np.int8 else 0)
    for k in range(4):
        chosen = [(selector | k) >> 4 * place & 7 for place in range(4)]
        sources = [(words >> 8 * c & 255) if c < 4 else np.uint32(bits >> 8 * (c - 4) & 255) for c in chosen]
        made = sum((np.broadcast_to(s, words.shape).astype(np.uint32) << 8 * place) for place, s in enumerate(sources))
        floats = made.astype(np.uint32).view(np.float32) - np.float32(8388608 + (128 if dtype is np.int8 else 0))
        assert np.array_equal(floats, values.view(dtype)[k::4].astype(np.float32))


def test_no_conversion_is_left() -> None:
    """None of the vectorised part; the tail of a row converts element by element."""
    large = [torch.empty(4096, 4096, dtype=torch.int8), torch.empty(4096).half(), torch.empty(4096).half()]
    ptx = twin(write(captured(Op(rows), large), GEMV))
    assert "cvt.rn.f32.s8" not in ptx and "cvt.rn.f32.s16" not in ptx and ptx.count("prmt.b32") >= 32
    packed = [torch.empty(4096, 2048, dtype=torch.uint8), torch.empty(4096, 32).half(), torch.empty(4096).half()]
    assert not re.search(r"cvt\.rn\.f32\.[us](8|16|32)", twin(write(captured(Op(nibbles), packed), GEMV)))
    builds(Op(rows), large)


def test_wider_integers_are_converted() -> None:
    text = write(captured(Op(lambda i: i.float() * 0.5), [torch.zeros(1000, dtype=torch.int32)])).text
    assert "_float(" not in text
