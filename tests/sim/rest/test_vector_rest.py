"""Vector instructions that clang seldom emits, each against NumPy on ordinary and special values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.sim.harness import Simulated

F32, F16, U32, I32 = np.float32, np.float16, np.uint32, np.int32
RDNA = {"target": "gfx1100", "threads": 32}


def _floats(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = (rng.standard_normal(64) * 10.0 ** rng.integers(-3, 4, 64)).astype(F32)
    found[:6] = [0.0, -0.0, 1.5, -2.5, np.inf, -np.inf]
    return found


def _halves(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = (rng.standard_normal(64) * 2.0 ** rng.integers(-4, 5, 64)).astype(F16)
    found[:4] = [0.0, 1.5, -2.5, 100.0]
    return found


def _words(seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 1 << 32, 64, dtype=np.uint64).astype(U32)
    found[:4] = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]
    return found


INPUTS: dict[str, Callable[[int], np.ndarray]] = {"f": _floats, "h": _halves, "u": _words}


@dataclass(frozen=True)
class RestCase:
    """A line that reads v10, v11, v12 (kinds, f: float32, h: float16 in the low half, u: words) and writes v20.

    expected: of the inputs -> words, or float32, float16 values. start: v20's old value is v13, given as last input.
    """

    line: str
    kinds: str
    expected: Callable[..., Any]
    rdna: bool = False


def _med(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.sort(np.stack([a, b, c]), axis=0)[1]


def _bytes(x: np.ndarray) -> np.ndarray:
    return x.view(np.int8).reshape(64, 4).astype(np.int64)


def _round_to_zero(x: np.ndarray) -> np.ndarray:
    """float16 bits of float32 values, rounded to zero."""
    made = x.astype(F16)
    past = np.isfinite(x) & (np.abs(made.astype(F32)) > np.abs(x))
    return np.where(past, made.view(np.uint16) - 1, made.view(np.uint16)).astype(U32)


CASES = [
    RestCase(
        "v_cvt_pk_rtz_f16_f32 v20, v10, v11", "ff", lambda a, b: _round_to_zero(a) | _round_to_zero(b) << U32(16), True
    ),
    RestCase(
        "v_cvt_rpi_i32_f32_e32 v20, v10",
        "f",
        lambda a: np.clip(np.floor(a.astype(float) + 0.5), -(2**31), 2**31 - 1).astype(np.int64).astype(U32),
    ),
    RestCase("v_maxmin_f32 v20, v10, v11, v12", "fff", lambda a, b, c: np.fmin(np.fmax(a, b), c), True),
    RestCase("v_minmax_f32 v20, v10, v11, v12", "fff", lambda a, b, c: np.fmax(np.fmin(a, b), c), True),
    RestCase("v_mad_f32 v20, v10, v11, v12", "fff", lambda a, b, c: (a * b).astype(F32) + c),
    RestCase("v_mov_b32_e32 v20, v12\nv_mac_f32_e32 v20, v10, v11", "fff", lambda a, b, c: (a * b).astype(F32) + c),
    RestCase(
        "v_maxmin_i32 v20, v10, v11, v12",
        "uuu",
        lambda a, b, c: np.minimum(np.maximum(a.view(I32), b.view(I32)), c.view(I32)).view(U32),
        True,
    ),
    RestCase(
        "v_minmax_i32 v20, v10, v11, v12",
        "uuu",
        lambda a, b, c: np.maximum(np.minimum(a.view(I32), b.view(I32)), c.view(I32)).view(U32),
        True,
    ),
    RestCase("v_maxmin_u32 v20, v10, v11, v12", "uuu", lambda a, b, c: np.minimum(np.maximum(a, b), c), True),
    RestCase("v_xor3_b32 v20, v10, v11, v12", "uuu", lambda a, b, c: a ^ b ^ c, True),
    RestCase("v_nop\nv_mov_b32_e32 v20, v10", "u", lambda a: a),
    RestCase("v_swap_b32 v10, v11\nv_sub_u32_e32 v20, v10, v11", "uu", lambda a, b: b - a),
    RestCase("v_accvgpr_write_b32 a1, v10\nv_accvgpr_mov_b32 a2, a1\nv_accvgpr_read_b32 v20, a2", "u", lambda a: a),
    RestCase(
        "v_mov_b32_e32 v20, v12\nv_dot4c_i32_i8_e32 v20, v10, v11",
        "uuu",
        lambda a, b, c: (c.astype(np.int64) + (_bytes(a) * _bytes(b)).sum(1)).astype(U32),
    ),
    RestCase("v_max3_f16 v20, v10, v11, v12", "hhh", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    RestCase("v_min3_f16 v20, v10, v11, v12", "hhh", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    RestCase("v_med3_f16 v20, v10, v11, v12", "hhh", _med),
    RestCase("v_ldexp_f16_e32 v20, v10, v11", "hs", lambda a, b: np.ldexp(a, b.astype(I32)).astype(F16)),
    RestCase("v_cvt_i16_f16_e32 v20, v10", "h", lambda a: np.trunc(a.astype(float)).astype(np.int16).view(np.uint16)),
    RestCase("v_cvt_u16_f16_e32 v20, v10", "h", lambda a: np.maximum(np.trunc(a.astype(float)), 0).astype(np.uint16)),
    RestCase(
        "v_mad_u16 v20, v10, v11, v12",
        "uuu",
        lambda a, b, c: ((a.astype(np.uint64) * b + c) & np.uint64(0xFFFF)).astype(np.uint16),
    ),
    RestCase("v_not_b16_e32 v20, v10", "u", lambda a: (~a).astype(np.uint16), True),
    RestCase("v_xor_b16 v20, v10, v11", "uu", lambda a, b: (a ^ b).astype(np.uint16), True),
]


def given(kinds: str) -> list[np.ndarray]:
    """Inputs by kind; s: exponents from -6 to 6 in the low half."""
    small = np.random.default_rng(9).integers(-6, 7, 64).astype(np.int16)
    return [small if kind == "s" else INPUTS[kind](n + 1) for n, kind in enumerate(kinds)]


def as_words(value: np.ndarray) -> np.ndarray:
    """Words of float32, float16, 16-bit and 32-bit values."""
    if value.dtype == F32:
        return value.view(U32)
    return value.view(np.uint16).astype(U32) if value.dtype.itemsize == 2 else value.astype(U32)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.line.splitlines()[-1].split()[0])
def test_rest(simulated: Simulated, case: RestCase) -> None:
    rows = given(case.kinds)
    lanes = 32 if case.rdna else 64
    more = RDNA if case.rdna else {}
    code = case.line if case.line.startswith("v_mov_b32_e32 v20") else "v_mov_b32_e32 v20, 0\n" + case.line
    found = simulated.run(code, np.stack([as_words(row) for row in rows]), **more)[0][:lanes]
    with np.errstate(all="ignore"):
        made = case.expected(*rows)
    narrow = made.dtype.itemsize == 2
    words = as_words(np.asarray(made))[:lanes]
    found = found & U32(0xFFFF) if narrow else found
    both = np.isnan(np.asarray(made, dtype=float)[:lanes]) if made.dtype in (F32, F16) else np.zeros(lanes, bool)
    same = (found == words) | both | ((found | words) << U32(17 if narrow else 1) == 0)
    lane = int(np.argmin(same))
    assert same.all(), (lane, [row[lane] for row in rows], hex(int(found[lane])), hex(int(words[lane])))


def test_packed_largest_and_smallest(simulated: Simulated) -> None:
    a, b = (np.random.default_rng(n).standard_normal(128).astype(F16) for n in (1, 2))
    code = "v_pk_max_f16 v20, v10, v11\nv_pk_min_f16 v21, v10, v11"
    found = simulated.run(code, np.stack([a.view(U32), b.view(U32)]), results=2)
    assert (found[0].copy().view(F16) == np.maximum(a, b)).all()
    assert (found[1].copy().view(F16) == np.minimum(a, b)).all()


def test_products_of_pairs_are_added(simulated: Simulated) -> None:
    """Whole numbers: exact in any order."""
    a, b = (np.random.default_rng(n).integers(-8, 9, 128).astype(F16) for n in (1, 2))
    c = np.arange(64, dtype=F32)
    code = "v_mov_b32_e32 v20, v12\nv_dot2c_f32_f16_e32 v20, v10, v11"
    found = simulated.run(code, np.stack([a.view(U32), b.view(U32), c.view(U32)]))[0].copy().view(F32)
    assert (found == c + (a.astype(F32) * b.astype(F32)).reshape(64, 2).sum(1)).all()


@pytest.mark.parametrize("mask", [0x003, 0x204, 0x1F8, 0x3FF, 0x060])
def test_classes_of_halves(simulated: Simulated, mask: int) -> None:
    """Bits 0 to 9: signalling and quiet NaN, -infinity, negative normal, subnormal and zero, then the positive ones."""
    bits = np.array([0x7D00, 0x7E00, 0xFC00, 0xC000, 0x8001, 0x8000, 0x0000, 0x0001, 0x4000, 0x7C00], np.uint32)
    rows = np.resize(bits, 64)
    code = f"s_movk_i32 s16, {mask:#x}\nv_cmp_class_f16_e64 s[18:19], v10, s16\nv_cndmask_b32_e64 v20, 0, 1, s[18:19]"
    found = simulated.run(code, rows[None])[0]
    assert [int(x) for x in found[:10]] == [mask >> n & 1 for n in range(10)]


def test_quotients_of_halves_are_fixed_up(simulated: Simulated) -> None:
    """Of a quotient, its divisor and dividend: what IEEE says where one is zero, infinite or no number."""
    inf, none = np.inf, np.nan
    cases = [(1.0, 2.0, 3.0, 1.0), (1.0, 0.0, 3.0, inf), (1.0, -0.0, 3.0, -inf), (1.0, 0.0, 0.0, none)]
    cases += [(1.0, inf, 3.0, 0.0), (1.0, inf, inf, none), (1.0, 2.0, -inf, -inf), (1.0, none, 3.0, none)]
    columns = np.resize(np.array(cases, F16), (64, 4)).T
    rows = np.stack([as_words(np.ascontiguousarray(column)) for column in columns[:3]])
    found = (
        simulated.run("v_mov_b32_e32 v20, 0\nv_div_fixup_f16 v20, v10, v11, v12", rows)[0].astype(np.uint16).view(F16)
    )
    assert np.array_equal(found, columns[3], equal_nan=True)


def test_float64(simulated: Simulated) -> None:
    a, b, c = (np.random.default_rng(n).standard_normal(64) * 1e3 for n in (1, 2, 3))
    rows = [
        part
        for x in (a, b, c)
        for part in ((x.view(np.uint64) & np.uint64(0xFFFFFFFF)), x.view(np.uint64) >> np.uint64(32))
    ]
    code = """
    v_fract_f64_e32 v[20:21], v[10:11]
    v_frexp_exp_i32_f64_e32 v22, v[10:11]
    v_mov_b32_e32 v24, 0
    v_mov_b32_e32 v25, 0x40000000
    v_fmac_f64_e32 v[24:25], 1.0, v[12:13]
    """
    found = simulated.run(code, np.stack(rows).astype(U32), results=6)
    wide = [
        (found[i].astype(np.uint64) | found[i + 1].astype(np.uint64) << np.uint64(32)).view(np.float64) for i in (0, 4)
    ]
    assert (wide[0] == a - np.floor(a)).all() and (wide[1] == 2.0 + b).all()
    assert (found[2].view(I32) == np.frexp(a)[1]).all()
