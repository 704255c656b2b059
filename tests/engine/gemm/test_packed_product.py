"""Products of packed weights with few vectors: unpacked in registers on every kind of unit, never in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hipwright.engine import author, explain, space, write
from tests.engine.harness import Op, captured, check, compare, reference, run
from tests.engine.template_builds import builds

HALF, BRAIN = torch.float16, torch.bfloat16
UNITS = [{"wave": 64}, {"wave": 32}, {"side": "amd"}, {"side": "nvidia", "wave": 32}, {"simulated": "gfx942"}]
"""A processor with shuffles, CDNA's and NVIDIA's matrix units as it computes them, and gfx942's machine code."""


def words(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    """Eight 4-bit numbers in a word of 32 bits, the lowest first, less 8, and a scale for each group."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    weight = (((packed[:, :, None] >> shifts) & 15) - 8).to(x.dtype)
    grouped = weight.view(packed.shape[0], scale.shape[1], -1) * scale[:, :, None]
    return torch.nn.functional.silu(x @ grouped.view(packed.shape[0], -1).t())


def zeros(x: Tensor, packed: Tensor, zero: Tensor, scale: Tensor) -> Tensor:
    """The same with a packed zero for each group."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    numbers = ((packed[:, :, None] >> shifts) & 15).view(packed.shape[0], scale.shape[1], -1)
    less = ((zero[:, :, None] >> shifts) & 15).view(packed.shape[0], -1)
    weight = (numbers - less[:, :, None]).to(x.dtype) * scale[:, :, None]
    return torch.nn.functional.linear(x, weight.view(packed.shape[0], -1))


def nibbles(packed: Tensor, x: Tensor) -> Tensor:
    """Two 4-bit numbers a byte, the weights on the left."""
    pair = torch.stack([packed & 15, packed >> 4], dim=-1).to(x.dtype) - 8.0
    return pair.view(packed.shape[0], -1) @ x.t()


def across(bits: int) -> Callable[..., Tensor]:
    """Numbers of any width, one behind the other across words, with a scale for each group."""

    def function(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
        first = torch.arange(x.shape[1]) * bits
        low = packed[:, first // 32].long() & 0xFFFFFFFF
        high = packed[:, (first + bits - 1) // 32].long() & 0xFFFFFFFF
        numbers = ((low | high << 32) >> (first % 32)) & (2**bits - 1)
        weight = (numbers - 2 ** (bits - 1)).to(x.dtype).view(packed.shape[0], scale.shape[1], -1) * scale[:, :, None]
        return x @ weight.view(packed.shape[0], -1).t()

    return function


def columns(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    """Words hold eight rows of a [k, n] matrix: neighbouring words are neighbouring columns'."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    numbers = ((packed[:, None, :] >> shifts[None, :, None]) & 15).view(-1, packed.shape[1])
    weight = (numbers - 8).to(x.dtype).view(scale.shape[0], -1, packed.shape[1]) * scale[:, None, :]
    return x @ weight.view(-1, packed.shape[1])


def draw(rows: int, columns: int, depth: int, groups: int, dtype: torch.dtype, kind: str = "words") -> list[Tensor]:
    make = torch.Generator().manual_seed(rows + columns + depth)
    x = torch.randn(rows, depth, generator=make).to(dtype)
    if kind == "nibbles":
        return [torch.randint(0, 256, (columns, depth // 2), dtype=torch.uint8, generator=make), x]
    bits = (-(2**31), 2**31 - 1)
    packed = torch.randint(*bits, (columns, depth // 8), dtype=torch.int32, generator=make)
    scale = (torch.rand(columns, groups, generator=make) * 0.1).to(dtype)
    if kind.isdigit():
        packed = torch.randint(*bits, (columns, depth * int(kind) // 32), dtype=torch.int32, generator=make)
        return [x, packed, scale]
    if kind == "columns":
        return [x, packed.view(depth // 8, columns), scale.view(groups, columns)]
    if kind == "words":
        return [x, packed, scale]
    return [x, packed, torch.randint(*bits, (columns, groups // 8), dtype=torch.int32, generator=make), scale]


FUNCTIONS: dict[str, Callable[..., Tensor]] = {"words": words, "zeros": zeros, "nibbles": nibbles, "columns": columns}
FUNCTIONS |= {str(bits): across(bits) for bits in range(1, 9)}
CASES = [
    ("words", HALF, 16, (16, 48, 512, 4)),
    ("words", BRAIN, 16, (17, 33, 1152, 9)),  # partial tiles; more vectors than the captured ones
    ("words", BRAIN, 64, (70, 21, 480, 4)),  # groups of 120, which no pack of 32 divides: by elements
    ("zeros", HALF, 32, (3, 40, 1024, 8)),
    ("zeros", BRAIN, 100, (100, 18, 2048, 16)),
    ("nibbles", HALF, 12, (12, 50, 288, 0)),
    ("nibbles", BRAIN, 12, (9, 16, 104, 0)),
    ("columns", HALF, 16, (5, 37, 1152, 9)),
    *((str(bits), BRAIN if bits % 2 else HALF, 16, (11, 19, 224, 7)) for bits in range(1, 9)),
]


@pytest.mark.matrix(keep=8)
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
@pytest.mark.parametrize(("kind", "dtype", "like", "sizes"), CASES)
def test_values(kind: str, dtype: torch.dtype, like: int, sizes: tuple[int, ...], unit: dict[str, Any]) -> None:
    """Written for 4096 columns; run at small ones."""
    model = Op(FUNCTIONS[kind])
    program = write(captured(model, draw(like, 4096, 4096, 32, dtype, kind)))
    assert "skinny_multiply" in program.text
    inputs = draw(*sizes, dtype, kind)
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, **unit)[0], expected, native)


def test_blocks_share_k() -> None:
    inputs = draw(16, 32, 4096, 32, BRAIN)
    text = check(Op(words), inputs, choices={"call:matmul": "packed", "call:matmul:split": 4}, wave=64)
    assert "partials_matmul" in text


@pytest.mark.parametrize("kind", ["words", "zeros", "nibbles", "columns", "1", "3", "5"])
def test_weights_are_never_expanded_in_memory(kind: str) -> None:
    for rows in (16, 64, 128):
        known = explain(captured(Op(FUNCTIONS[kind]), draw(rows, 4096, 4096, 32, HALF, kind)))
        assert [k["mapping"] for k in known["kernels"]] == ["call:packed"], rows


def test_when_it_is_the_default() -> None:
    """Not for few vectors, which the gemv template unpacks; not for many; not where it is turned off."""
    for rows, usual in ((1, "gemv"), (8, "gemv"), (9, "packed"), (128, "packed")):
        assert space(captured(Op(words), draw(rows, 4096, 4096, 32, HALF)))["call:matmul"].default == usual, rows
    assert space(captured(Op(across(3)), draw(1, 4096, 4096, 32, HALF, "3")))["call:matmul"].default == "packed"
    many = space(captured(Op(words), draw(512, 4096, 4096, 32, HALF)))["call:matmul"]
    assert "packed" not in many.options
    graph = captured(Op(words), draw(16, 4096, 4096, 32, HALF))
    assert author(graph, {"packed": False}).space["call:matmul"].default != "packed"


def test_floats_stay_with_the_others() -> None:
    inputs = draw(16, 64, 1024, 8, torch.float32)
    assert "packed" not in space(captured(Op(words), inputs))["call:matmul"].options


@pytest.mark.parametrize("dtype", [HALF, BRAIN])
@pytest.mark.parametrize("rows", [16, 64])
def test_builds(dtype: torch.dtype, rows: int) -> None:
    assert "skinny_multiply" in builds(Op(words), draw(rows, 4096, 4096, 32, dtype))
