"""Vector instructions on 16-bit values, and all comparisons, as in `cases_vector`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.sim.cases_vector import U32, Case
from tests.sim.values import Array, fma, half_bits, halves, lanewise, signed

MASK = "\nv_mov_b32_e32 v20, vcc_lo\nv_mov_b32_e32 v21, vcc_hi"
HALF = [
    Case("v_add_f16_e32 v20, v10, v11", "hh", "h", lambda a, b: half_bits(halves(a) + halves(b))),
    Case("v_sub_f16_e32 v20, v10, v11", "hh", "h", lambda a, b: half_bits(halves(a) - halves(b))),
    Case("v_mul_f16_e32 v20, v10, v11", "hh", "h", lambda a, b: half_bits(halves(a) * halves(b))),
    Case(
        "v_fma_f16 v20, v10, v11, v12",
        "hhh",
        "h",
        lambda a, b, c: half_bits(fma(halves(a), halves(b), halves(c), 11, -14, np.float16)),
    ),
    Case(
        "v_pk_add_f16 v20, v10, v11",
        "hh",
        "p",
        lambda a, b: half_bits(halves(a) + halves(b)) | half_bits(halves(a, 1) + halves(b, 1)) << U32(16),
    ),
    Case(
        "v_pk_mul_f16 v20, v10, v11 op_sel:[1,0] op_sel_hi:[0,1]",
        "hh",
        "p",
        lambda a, b: half_bits(halves(a, 1) * halves(b)) | half_bits(halves(a) * halves(b, 1)) << U32(16),
    ),
    Case(
        "v_pk_fma_f16 v20, v10, v11, v12 neg_lo:[0,1,0]",
        "hhh",
        "p",
        lambda a, b, c: (
            half_bits(fma(halves(a), -halves(b), halves(c), 11, -14, np.float16))
            | half_bits(fma(halves(a, 1), halves(b, 1), halves(c, 1), 11, -14, np.float16)) << U32(16)
        ),
    ),
    Case(
        "v_fma_mix_f32 v20, v10, v11, v12 op_sel:[1,0,0] op_sel_hi:[1,1,0]",
        "hhn",
        "f",
        lambda a, b, c: fma(halves(a, 1).astype(np.float32), halves(b).astype(np.float32), c),
    ),
    Case("v_fma_mixlo_f16 v20, v10, v11, v12", "nnn", "h", lambda a, b, c: half_bits(fma(a, b, c))),
    Case("v_fma_mixhi_f16 v20, v10, v11, v12", "nnn", "i", lambda a, b, c: half_bits(fma(a, b, c)) << U32(16)),
    Case("v_add_u16_e32 v20, v10, v11", "ii", "i", lambda a, b: (a + b) & U32(0xFFFF)),
    Case("v_sub_u16_e32 v20, v10, v11", "ii", "i", lambda a, b: (a - b) & U32(0xFFFF)),
    Case("v_mul_lo_u16_e32 v20, v10, v11", "ii", "i", lambda a, b: (a * b) & U32(0xFFFF)),
    Case("v_lshlrev_b16_e32 v20, v10, v11", "si", "i", lambda a, b: (b << (a & U32(15))) & U32(0xFFFF)),
    Case("v_lshrrev_b16_e32 v20, v10, v11", "si", "i", lambda a, b: (b & U32(0xFFFF)) >> (a & U32(15))),
    Case(
        "v_pk_add_u16 v20, v10, v11",
        "ii",
        "i",
        lambda a, b: ((a + b) & U32(0xFFFF)) | ((a >> U32(16)) + (b >> U32(16))) << U32(16),
    ),
    Case(
        "v_dot4_i32_i8 v20, v10, v11, v12",
        "iii",
        "i",
        lanewise(lambda a, b, c: (sum(_s8(a >> 8 * i) * _s8(b >> 8 * i) for i in range(4)) + c) & 0xFFFFFFFF),
    ),
]


def _s8(x: int) -> int:
    return (x & 255) - 256 * (x >> 7 & 1)


def compare_cases() -> list[Case]:
    """All comparisons, as masks in vcc: the low word in v20, the high one in v21."""
    integer: dict[str, Callable[[Any, Any], Array]] = {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
    ordered = {name: integer[name] for name in ("eq", "lt", "le", "gt", "ge")}
    floats: dict[str, Callable[[Any, Any], Array]] = {
        **ordered,
        "lg": lambda a, b: (a < b) | (a > b),
        "neq": np.not_equal,
        "nlg": lambda a, b: ~((a < b) | (a > b)),
        "nlt": lambda a, b: ~(a < b),
        "nle": lambda a, b: ~(a <= b),
        "ngt": lambda a, b: ~(a > b),
        "nge": lambda a, b: ~(a >= b),
        "u": lambda a, b: np.isnan(a) | np.isnan(b),
        "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    }
    types: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("u32", "i", lambda x: x, integer),
        ("i32", "i", signed, integer),
        ("u64", "q", lambda x: x, integer),
        ("i64", "q", lambda x: x.view(np.int64), integer),
        ("f32", "f", lambda x: x, floats),
        ("f64", "d", lambda x: x, floats),
        ("f16", "h", halves, floats),
        ("u16", "i", lambda x: x & U32(0xFFFF), integer),
        ("i16", "i", lambda x: signed((x << U32(16)).astype(U32)), integer),
    ]
    made = []
    for suffix, kind, read, table in types:
        second = "v[12:13]" if kind in "qd" else "v11"
        first = "v[10:11]" if kind in "qd" else "v10"
        for name, f in table.items():
            line = f"v_cmp_{name}_{suffix}_e32 vcc, {first}, {second}"
            made.append(Case(line + MASK, kind * 2, "m", _mask(f, read)))
    return made


def _mask(f: Callable[[Any, Any], Array], read: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    def work(a: Array, b: Array) -> Array:
        bits = f(read(a), read(b))
        number = sum(1 << i for i, bit in enumerate(bits) if bit)
        return np.stack([np.full(64, number & 0xFFFFFFFF, U32), np.full(64, number >> 32, U32)])

    return work


MORE = [*HALF, *compare_cases()]
