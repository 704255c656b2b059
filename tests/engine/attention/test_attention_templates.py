"""Attention by tiles and by chunks of the keys: values on the cpu target, resources of real builds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hipwright.engine import explain, space, write
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from tests.engine.harness import CACHE, captured, check, kernels_in

CALL = "call:scaled_dot_product_attention"
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100")
HALF, BRAIN = torch.float16, torch.bfloat16


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


class Attention(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **self.options)


class Block(torch.nn.Module):
    """Heads as slices of one product."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, e = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(e, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, n, e))


def qkv(*sizes: int, heads: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """(batch, query heads, queries, keys, size, size of values)."""
    b, h, n, m, d, dv = sizes
    shared = heads or h
    return [draw(b, h, n, d, dtype=dtype), draw(b, shared, m, d, dtype=dtype), draw(b, shared, m, dv, dtype=dtype)]


def row_without_keys(rows: int, keys: int) -> torch.Tensor:
    """A boolean mask in which one query attends to no key."""
    mask = torch.rand(rows, keys, generator=torch.Generator().manual_seed(1)) > 0.5
    mask[1] = False
    return mask


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("options", "inputs", "knobs", "wave"),
    [
        ({}, qkv(2, 3, 37, 29, 40, 40), {"ATTN_ROWS": 2, "ATTN_KEYS": 2}, 64),
        ({"is_causal": True, "scale": 0.3}, qkv(2, 3, 37, 29, 40, 40), {"ATTN_BLOCK": 64}, 32),
        ({"enable_gqa": True}, qkv(2, 4, 21, 33, 16, 24, heads=2), {"ATTN_ROWS": 4, "ATTN_KEYS": 1}, 64),
        ({}, qkv(1, 2, 20, 50, 130, 129), {}, 64),
        ({"is_causal": True}, qkv(1, 2, 40, 40, 64, 64, dtype=HALF), {}, 32),
        ({}, qkv(1, 2, 40, 40, 80, 80, dtype=BRAIN), {}, 64),
        ({}, [*qkv(2, 3, 19, 29, 20, 20), row_without_keys(19, 29)], {}, 64),
        ({}, [*qkv(2, 3, 19, 29, 20, 20), draw(2, 1, 19, 29)], {}, 64),
    ],
)
def test_tiles(options: dict[str, Any], inputs: list[torch.Tensor], knobs: dict[str, int], wave: int) -> None:
    text = check(Attention(**options), inputs, choices={CALL: "tiled", **knobs}, wave=wave)
    assert kernels_in(text) == 1


@pytest.mark.matrix(keep=3)
@pytest.mark.parametrize(
    ("options", "inputs", "knobs", "wave"),
    [
        ({}, qkv(2, 3, 1, 129, 40, 40), {"DECODE_KEYS": 64}, 64),
        ({"enable_gqa": True}, qkv(2, 6, 2, 133, 64, 72, heads=2), {"DECODE_ROWS": 4, "DECODE_BLOCK": 128}, 32),
        ({"is_causal": True}, qkv(2, 2, 5, 70, 24, 24, dtype=HALF), {}, 64),
        ({}, [*qkv(2, 3, 3, 129, 20, 6), row_without_keys(3, 129)], {}, 64),
        ({}, [*qkv(2, 3, 1, 129, 256, 256, dtype=BRAIN), draw(2, 3, 1, 129, dtype=BRAIN)], {}, 64),
    ],
)
def test_chunks_of_the_keys(options: dict[str, Any], inputs: list[Any], knobs: dict[str, int], wave: int) -> None:
    text = check(Attention(**options), inputs, choices={CALL: "split", **knobs}, wave=wave)
    assert kernels_in(text) == 2


def test_heads_are_read_in_place_at_any_length() -> None:
    chosen = {CALL: "tiled", "call:linear": "library"}
    text = check(
        Block(64, 2), [draw(2, 37, 64)], choices=chosen, other=[draw(1, 5, 64)], library=("aten.linear.default",)
    )
    assert "linear.storage_offset()" in text  # no copy of q, k or v


def test_one_program_for_all_lengths_guards_the_head_size() -> None:
    inputs, other = qkv(2, 3, 12, 20, 16, 16), qkv(1, 3, 7, 33, 16, 16)
    text = check(Attention(), inputs, other=other)
    assert ".shape[3] == 16" in text


@pytest.mark.parametrize(("wide", "chosen"), [(16, {CALL: "library"}), (257, {})])
def test_library_attention_accepts_every_head_size(wide: int, chosen: dict[str, Any]) -> None:
    inputs, other = qkv(2, 3, 12, 20, wide, wide), qkv(1, 5, 7, 33, 8, 8)
    library = ("aten.scaled_dot_product_attention.default",)
    text = check(Attention(), inputs, choices=chosen, other=other, library=library)
    assert "shape[3] == q_3" in text and f"== {wide}" not in text
    offered = space(captured(Attention(), qkv(2, 3, 12, 20, 16, 16))).keys()
    assert CALL in offered, "its kernels are on offer all the same"


def test_library_attention_of_half_types_guards_the_head_size() -> None:
    """On a GPU the library pads other heads to a multiple of 8 and returns outputs with gaps."""
    halves = [tensor.half() for tensor in qkv(2, 3, 12, 20, 16, 16)]
    assert "shape[3] == 16" in write(captured(Attention(), halves), {CALL: "library"}).text


def test_static_rules() -> None:
    def default(*sizes: int, dtype: torch.dtype = torch.float32, **more: Any) -> Any:
        return space(captured(Attention(), qkv(*sizes, dtype=dtype)))[CALL].default

    assert default(2, 4, 64, 64, 32, 32) == "tiled"
    assert default(2, 8, 1, 512, 64, 64, dtype=HALF) == "split"
    assert default(4, 8, 1024, 1024, 64, 64) == "library"


def test_dropout_and_doubles_stay_in_the_library() -> None:
    graph = captured(Attention(), qkv(1, 2, 8, 8, 8, 8, dtype=torch.float64))
    assert "dtypes" in explain(graph)["library"]["scaled_dot_product_attention"]["reason"]


def build_all(text: str, knobs: Any) -> None:
    parsed = parse(text)
    for target in TARGETS:
        build = amdgpu.build(parsed.hip, target, parsed.defines(knobs), cache=CACHE, unsafe=True)
        assert build.ok, build.log
        assert [k.name for k in build.kernels if k.scratch_bytes] == []


@pytest.mark.parametrize(("size", "dtype"), [(32, torch.float32), (64, BRAIN), (128, torch.float32), (256, HALF)])
def test_tiles_need_no_scratch(size: int, dtype: torch.dtype) -> None:
    program = write(captured(Attention(is_causal=True), qkv(8, 16, 256, 256, size, size, dtype=dtype)), {CALL: "tiled"})
    build_all(program.text, program.knobs)


@pytest.mark.parametrize(("size", "dtype"), [(64, torch.float32), (128, BRAIN), (256, torch.float32)])
def test_chunks_need_no_scratch(size: int, dtype: torch.dtype) -> None:
    inputs = qkv(8, 32, 1, 1024, size, size, heads=8, dtype=dtype)
    program = write(captured(Attention(enable_gqa=True), inputs), {CALL: "split"})
    build_all(program.text, program.knobs)
