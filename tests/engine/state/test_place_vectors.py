"""Rows that are concatenated and written into places: whole vectors of one part, all loads before the first wait."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hipwright.engine import space, write
from hipwright.errors import GuardFailed
from hipwright.program import parse
from hipwright.toolchain.amd import offline as amdgpu
from tests.engine.harness import CACHE, Op, captured, run
from tests.engine.template_builds import builds, program_builds

SLOTS, HEADS, HEAD = 40, 4, 32
CHOICE = "call:index_put:concat"


def _rotary(cache: Any, slots: Any, keys: Any, cosine: Any, sine: Any) -> None:
    first, second = keys.float().chunk(2, dim=-1)
    turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
    cache[slots] = turned.to(keys.dtype)


def _partly(cache: Any, slots: Any, keys: Any, cosine: Any, sine: Any) -> None:
    """The first half is turned in pairs of quarters, the rest is copied: parts of other widths."""
    a, b, rest = keys.float().split([HEAD // 4, HEAD // 4, HEAD // 2], dim=-1)
    c, s = cosine[..., : HEAD // 4], sine[..., : HEAD // 4]
    cache[slots] = torch.cat([a * c - b * s, b * c + a * s, rest], dim=-1).to(keys.dtype)


def _ragged(cache: Any, slots: Any, keys: Any, cosine: Any, sine: Any) -> None:
    """A border within a vector."""
    cache[slots] = torch.cat([keys[..., 3:] * 2.0, keys[..., :3] + sine.mean()], dim=-1).to(keys.dtype)


FORMS: dict[str, Callable[..., None]] = {"rotary": _rotary, "partly": _partly, "ragged": _ragged}


def _inputs(tokens: int, dtype: torch.dtype = torch.bfloat16, heads: int = HEADS, head: int = HEAD) -> list[Any]:
    torch.manual_seed(tokens)
    angle = torch.rand(tokens, 1, head // 2) * 6.28
    slots = torch.randperm(SLOTS * 32)[:tokens]
    cache = torch.randn(SLOTS * 32, heads, head).to(dtype)
    return [cache, slots, torch.randn(tokens, heads, head).to(dtype), angle.cos(), angle.sin()]


def _check(program: Any, function: Callable[..., None], inputs: list[Any], wave: int = 64) -> None:
    wanted = inputs[0].clone()
    function(wanted, *inputs[1:])
    run(program, Op(function), inputs, wave=wave)
    torch.testing.assert_close(inputs[0], wanted, rtol=1.6e-2, atol=1.6e-2)


@pytest.mark.parametrize("concat", ["parts", "whole"])
@pytest.mark.parametrize("form", FORMS)
def test_values(form: str, concat: str) -> None:
    function = FORMS[form]
    program = write(captured(Op(function), _inputs(24)), {CHOICE: concat})
    for tokens in (24, 1, 7):
        _check(program, function, _inputs(tokens), wave=32 if tokens == 7 else 64)


@pytest.mark.parametrize("concat", ["parts", "whole"])
def test_addresses_off_a_boundary(concat: str) -> None:
    """Elements one by one: the cache, the keys and the cosines begin where no vector does."""
    program = write(captured(Op(_rotary), _inputs(24)), {CHOICE: concat})
    for moved in (0, 2, 3):
        inputs = _inputs(24)
        memory = torch.zeros(inputs[moved].numel() + 1, dtype=inputs[moved].dtype)
        inputs[moved] = memory[1:].view(inputs[moved].shape).copy_(inputs[moved])
        _check(program, _rotary, inputs)


@pytest.mark.parametrize(("form", "concat"), [("rotary", "parts"), ("rotary", "whole"), ("partly", "whole")])
def test_vectors_keep_to_one_part(form: str, concat: str) -> None:
    program = write(captured(Op(FORMS[form]), _inputs(24)), {CHOICE: concat})
    fast = program.text[program.text.index("if (is_wide_aligned") : program.text.index("for (int j")]
    assert not re.search(r"\b\w+\[[^\]]*\+ v", fast), "no element is loaded alone"
    assert fast.count("load_aligned<8>") >= (4 if concat == "parts" else 6)
    assert "store_whole<8>" in fast
    program_builds(program, lambda target: 2)


def test_a_border_within_a_vector_is_a_condition_of_elements() -> None:
    text = write(captured(Op(_ragged), _inputs(24))).text
    assert re.search(r"if \(i2 \+ v < 29\)|i2 \+ v < 29 \?", text)


def test_the_default_follows_the_size() -> None:
    few, many = (captured(Op(_rotary), _inputs(tokens)) for tokens in (24, 1100))
    assert space(few)[CHOICE].default == "whole"
    assert space(many)[CHOICE].default == "parts"


def test_the_width_of_what_is_written_is_fixed() -> None:
    """It is that of the cache's rows, which is fixed: no test of a row's end is left."""
    program = write(captured(Op(_rotary), _inputs(24)))
    assert "i2 + 8 <=" not in program.text
    with pytest.raises(GuardFailed):
        run(program, Op(_rotary), _inputs(5, head=16))


def test_no_load_waits_for_the_places() -> None:
    """In machine code all loads of the fast path come before the first wait for one."""
    text = builds(Op(_rotary), _inputs(1100))
    parsed = parse(text)
    made = amdgpu.build(parsed.hip, "gfx942", parsed.defines({}), cache=CACHE, unsafe=True)
    code = CACHE.get(made.isa_blob).decode()
    start = code.index("_exact:") if "_exact:" in code else 0
    steps = re.findall(r"global_load_dwordx?\d?|s_waitcnt vmcnt|global_store_dwordx4|global_load_ushort", code[start:])
    vectors = [n for n, step in enumerate(steps) if step == "global_load_dwordx4"]
    assert len(vectors) >= 6
    first, last = vectors[0], vectors[5]
    assert "s_waitcnt vmcnt" not in steps[first:last], steps[first : last + 1]
    assert "global_load_dwordx2" in steps[:first], "the place is asked for first"
    assert "s_waitcnt vmcnt" not in steps[steps.index("global_load_dwordx2") : first], "and not waited for"
