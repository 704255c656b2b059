"""Decoding over keys and values in pages: the kernel reads pages by the block table, 16 bytes at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hipwright.engine import author, explain, write
from hipwright.engine.knobs import SPLIT
from tests.engine.attention.test_attention_templates import build_all
from tests.engine.harness import Op, captured, compare, reference, run
from tests.engine.template_builds import builds

UNITS = [{"wave": 64}, {"wave": 32}, {"side": "nvidia", "wave": 32}, {"simulated": "gfx942"}]


def decode(window: int, heads: int) -> Any:
    """Attention of one token over the keys below its length, at most `window` of them if that is not 0."""

    def function(q: Tensor, key_cache: Tensor, value_cache: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
        q = q.unflatten(1, (key_cache.shape[2], heads))
        keys = key_cache[table].flatten(1, 2).transpose(1, 2).to(torch.float32).to(q.dtype)
        values = value_cache[table].flatten(1, 2).transpose(1, 2).to(torch.float32).to(q.dtype)
        scores = q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
        place, end = torch.arange(keys.shape[2]), lengths[:, None, None, None]
        hidden = place >= end if window == 0 else (place >= end) | (place < end - window)
        return (torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ values).flatten(1, 2)

    return function


def widened(window: int, heads: int) -> Any:
    """The same of half queries, keys and values that are widened to floats."""

    def function(q: Tensor, *rest: Tensor) -> Tensor:
        key_cache, value_cache, table, lengths = rest
        return decode(window, heads)(q.float(), key_cache, value_cache, table, lengths)

    return function


def hidden_choice(space: Any) -> str:
    (key,) = (one for one in space if one.endswith(":hidden"))
    return str(key)


def draw(sequences: int, blocks: int, page: int, heads: int, size: int, dtype: torch.dtype) -> list[Tensor]:
    make = torch.Generator().manual_seed(sequences + blocks)
    pages = sequences * blocks + 5
    caches = [torch.randn(pages, page, 2, size, generator=make).to(dtype) for _ in range(2)]
    table = torch.randperm(pages, generator=make)[: sequences * blocks].view(sequences, blocks)
    lengths = torch.randint(1, blocks * page + 1, (sequences,), generator=make)
    return [torch.randn(sequences, 2 * heads, size, generator=make), *caches, table, lengths]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
@pytest.mark.parametrize(("window", "heads", "dtype"), [(0, 4, torch.bfloat16), (40, 8, torch.float16)])
def test_values(window: int, heads: int, dtype: torch.dtype, unit: dict[str, Any]) -> None:
    model = Op(decode(window, heads))
    inputs = draw(3, 9, 16, heads, 64, dtype)
    program = write(captured(model, inputs))
    assert program.text.count("load_16_bytes(x_") == 2
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, **unit)[0], expected, native)


def test_pages_are_read_where_they_lie() -> None:
    """One kernel over chunks and one that combines them; no tensor holds the gathered keys."""
    inputs = draw(64, 64, 16, 4, 128, torch.bfloat16)
    graph = captured(Op(decode(0, 4)), inputs)
    assert [k["mapping"] for k in explain(graph)["kernels"]] == ["call:split"] * 2
    text = write(graph).text
    assert text.count("load_16_bytes(x_1 + ") == text.count("load_16_bytes(x_2 + ") == 1


def test_builds() -> None:
    assert "load_16_bytes" in builds(Op(decode(0, 4)), draw(64, 64, 16, 4, 128, torch.bfloat16))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: "-".join(str(v) for v in unit.values()))
@pytest.mark.parametrize(("window", "heads", "dtype"), [(0, 4, torch.bfloat16), (40, 8, torch.float16)])
def test_widened_halves_by_matrix_units(window: int, heads: int, dtype: torch.dtype, unit: dict[str, Any]) -> None:
    """Values as exact as floats; pages of which no key is seen are not multiplied."""
    q, *rest = draw(3, 9, 16, heads, 64, dtype)
    model, inputs = Op(widened(window, heads)), [q.to(dtype), *rest]
    program = write(captured(model, inputs), {SPLIT: True, "DECODE_KEYS": 64})
    assert "FewRowSums<" in program.text
    assert ", DV, 3>" in program.text
    assert "__any(seen)" in program.text
    expected, native, _ = reference(model, inputs)
    compare(run(program, model, inputs, **unit)[0], expected, native)


@pytest.mark.parametrize("choices", [{}, {SPLIT: True}], ids=["split", "matrix"])
def test_hidden_keys_are_a_choice(choices: dict[str, Any]) -> None:
    q, *rest = draw(3, 9, 16, 4, 64, torch.bfloat16)
    model, inputs = Op(widened(0, 4)), [q.to(torch.bfloat16), *rest]
    graph = captured(model, inputs)
    space = author(graph, choices).space
    key = hidden_choice(space)
    assert (space[key].options, space[key].default) == (("read", "skipped"), "skipped")
    expected, native, _ = reference(model, inputs)
    for value in space[key].options:
        program = write(graph, {**choices, key: value})
        assert ("__any(seen)" in program.text) == (value == "skipped")
        compare(run(program, model, inputs)[0], expected, native)


@pytest.mark.parametrize("choices", [{}, {SPLIT: True}], ids=["split", "matrix"])
def test_hidden_keys_that_are_no_numbers(choices: dict[str, Any]) -> None:
    """NaN keys behind a length change nothing; such a value makes its column NaN, as in the module."""
    q, key_cache, value_cache, table, lengths = draw(3, 9, 16, 4, 64, torch.bfloat16)
    lengths[:] = torch.tensor([5, 70, 144])
    key_cache[table[0, 1:]] = math.nan
    value_cache[table[1, 8], 3, 1, 7] = math.inf
    model, inputs = Op(widened(0, 4)), [q.to(torch.bfloat16), key_cache, value_cache, table, lengths]
    program = write(captured(model, inputs), {**choices, "DECODE_KEYS": 64})
    expected, native, _ = reference(model, inputs)
    got = run(program, model, inputs)[0]
    assert 0 < int(got.isnan().sum()) < got.numel() / 2
    compare(got, expected, native)


def test_widened_halves_build() -> None:
    q, *rest = draw(64, 64, 16, 4, 128, torch.bfloat16)
    for window in (0, 128):
        program = write(captured(Op(widened(window, 4)), [q.to(torch.bfloat16), *rest]), {SPLIT: True})
        assert "FewRows" in program.text
        build_all(program.text, program.knobs)
