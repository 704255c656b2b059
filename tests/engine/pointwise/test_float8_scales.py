"""Quantisation by one scale: codes are those of a division, whatever the scale is, though none divides."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from hipwright.engine import write
from tests.engine.harness import Op, captured, run
from tests.engine.template_builds import builds

SCALES = (0.0078125, 0.01234, -0.37, 3.0, 1e-20, 1e20, 1e-44, 3e38, 0.0, float("inf"), float("nan"))
"""Plain ones, those whose reciprocal is subnormal, infinite or zero, and those that have none."""
SPECIAL = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-38, 3e38, 448.0, 464.0)
KINDS = (torch.float8_e4m3fn, torch.float8_e5m2)


def _codes(kind: torch.dtype) -> Any:
    return lambda x, scale: (x.float() / scale).to(kind)


def _round_trip(x: torch.Tensor, scale: torch.Tensor) -> Any:
    codes = (x.float() / scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return codes, (codes.float() * scale).to(x.dtype)


def _two_scales(x: torch.Tensor, scale: torch.Tensor) -> Any:
    """A divisor that is computed, and a quotient that is read otherwise than by its code too."""
    quotient = x.float() / (scale * 2.0)
    codes = quotient.to(torch.float8_e4m3fn)
    return codes, (codes.float() * scale + quotient).to(torch.float16)


def _numbers(dtype: torch.dtype, sizes: tuple[int, int] = (33, 64)) -> torch.Tensor:
    torch.manual_seed(5)
    x = torch.randn(sizes) * torch.logspace(-6, 6, sizes[1])
    x[0, : len(SPECIAL)] = torch.tensor(SPECIAL)
    return x.to(dtype)


def _same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """The same bits; a NaN has no sign."""
    nan = wanted.float().isnan()
    assert torch.equal(found.float().isnan(), nan)
    kind = torch.uint8 if wanted.element_size() == 1 else torch.int16
    assert torch.equal(found.view(kind)[~nan], wanted.view(kind)[~nan])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_those_of_a_division(kind: torch.dtype, dtype: torch.dtype) -> None:
    function = _codes(kind)
    program = write(captured(Op(function), [_numbers(dtype), torch.ones(1)]), {"map:to_copy_div": "vector"})
    assert "divide_by" in program.text
    for sizes in ((33, 64), (7, 13)):
        for scale in SCALES:
            inputs = [_numbers(dtype, sizes) if sizes[1] > 60 else _numbers(dtype)[:7, :13].contiguous()]
            found, _ = run(program, Op(function), [*inputs, torch.tensor([scale])])
            _same(found, function(*inputs, torch.tensor([scale])))


def test_many_quotients() -> None:
    """Scales and numbers of all mantissas: a last bit that is off would be another code at a border."""
    program = write(captured(Op(_codes(KINDS[0])), [torch.randn(512, 512), torch.ones(1)]))
    for seed in range(8):
        torch.manual_seed(seed)
        scale = torch.rand(1) * 0.02 + 0.005
        middles = (torch.randint(8, 16, (512, 512)) + 0.5) / 8 * scale  # between two codes, or next to it
        x = middles * (1 + torch.randint(-2, 3, middles.shape) * 2.0**-24)
        found, _ = run(program, Op(_codes(KINDS[0])), [x, scale], checked=False)
        _same(found, (x / scale).to(KINDS[0]))


@pytest.mark.parametrize("wave", [32, 64])
def test_what_is_read_back_is_what_is_stored(wave: int) -> None:
    program = write(captured(Op(_round_trip), [_numbers(torch.bfloat16, (520, 512)), torch.ones(1)]))
    assert "round_tile_float8_e4m3fn" in program.text
    for scale in SCALES[:4]:
        inputs = [_numbers(torch.bfloat16, (520, 512)), torch.tensor([scale])]
        found, _ = run(program, Op(_round_trip), inputs, wave=wave)
        for mine, wanted in zip(found, _round_trip(*inputs), strict=True):
            _same(mine, wanted)


def test_a_quotient_that_has_another_reader() -> None:
    program = write(captured(Op(_two_scales), [_numbers(torch.float32, (520, 512)), torch.ones(1)]))
    inputs = [torch.randn(520, 512), torch.tensor([0.02])]
    found, _ = run(program, Op(_two_scales), inputs)
    _same(found[0], _two_scales(*inputs)[0])
    torch.testing.assert_close(found[1].float(), _two_scales(*inputs)[1].float(), rtol=2e-3, atol=2e-3)


def test_one_division_a_thread() -> None:
    text = builds(Op(_round_trip), [torch.randn(512, 512, dtype=torch.bfloat16), torch.ones(1)])
    fast = text[text.index("if (has_whole_vectors") : text.index("return;")]
    assert len(re.findall(r" / (?!VEC)", fast)) == 1, "the reciprocal"
    assert "round_float8" not in fast, "rounded in pairs, once"
    assert "continue" not in fast, "a number for all needs no test of the element"
    assert fast.index("load_whole_vectors") < fast.index("is_plain_divisor"), "vectors do not wait for the scale"
