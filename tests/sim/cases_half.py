"""More vector instructions, as in `cases_vector`: 16-bit values, packed pairs, accumulations, rarer integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.sim.cases_vector import U32, Case
from tests.sim.values import Array, fma, half_bits, halves, lanewise, signed, word

LOW = U32(0xFFFF)


def _s16(x: Array) -> Array:
    return signed((x << U32(16)).astype(U32)) >> 16


def _w16(x: Array) -> Array:
    return word(x) & LOW


def _wide(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of float16 that rounds once from float64."""
    return lambda a: half_bits(f(halves(a).astype(np.float64)))


def _both(f: Callable[..., Array]) -> Callable[..., Array]:
    """A function of 16-bit words on the low and the high halves."""
    return lambda *args: (f(*(x & LOW for x in args)) & LOW) | (f(*(x >> U32(16) for x in args)) & LOW) << U32(16)


def _f16(f: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *args: half_bits(f(*(halves(x) for x in args)))


def _pick(f: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def work(a: Array, b: Array) -> Array:
        x, y = halves(a), halves(b)
        return half_bits(np.where(np.isnan(x), y, np.where(np.isnan(y), x, f(x, y))))

    return work


def _bfloat(x: Array) -> Array:
    u = x.view(U32)
    rounded = (u + U32(0x7FFF) + (u >> U32(16) & U32(1))) >> U32(16)
    return np.where(np.isnan(x), u >> U32(16) | U32(0x40), rounded)


INTEGER_16: dict[str, Callable[..., Array]] = {
    "v_max_u16_e32": lambda a, b: np.maximum(a & LOW, b & LOW),
    "v_min_u16_e32": lambda a, b: np.minimum(a & LOW, b & LOW),
    "v_max_i16_e32": lambda a, b: _w16(np.maximum(_s16(a), _s16(b))),
    "v_min_i16_e32": lambda a, b: _w16(np.minimum(_s16(a), _s16(b))),
    "v_ashrrev_i16_e32": lambda a, b: _w16(_s16(b) >> (a & U32(15)).astype(np.int64)),
    "v_subrev_u16_e32": lambda a, b: (b - a) & LOW,
}
PACKED_16: dict[str, Callable[..., Array]] = {
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_max_u16": np.maximum,
    "v_pk_min_u16": np.minimum,
    "v_pk_max_i16": lambda a, b: _w16(np.maximum(_s16(a), _s16(b))),
    "v_pk_min_i16": lambda a, b: _w16(np.minimum(_s16(a), _s16(b))),
    "v_pk_lshlrev_b16": lambda a, b: b << (a & U32(15)),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & U32(15)),
    "v_pk_ashrrev_i16": lambda a, b: _w16(_s16(b) >> (a & U32(15)).astype(np.int64)),
}
UNARY_16: dict[str, Callable[[Array], Array]] = {
    "v_trunc_f16_e32": np.trunc,
    "v_floor_f16_e32": np.floor,
    "v_ceil_f16_e32": np.ceil,
    "v_rndne_f16_e32": np.rint,
    "v_rcp_f16_e32": lambda x: 1 / x,
    "v_sqrt_f16_e32": np.sqrt,
    "v_rsq_f16_e32": lambda x: 1 / np.sqrt(x),
    "v_exp_f16_e32": np.exp2,
    "v_log_f16_e32": np.log2,
}
INTEGER: dict[str, tuple[int, Callable[..., Array]]] = {
    "v_max3_i32": (3, lambda a, b, c: word(np.maximum(np.maximum(signed(a), signed(b)), signed(c)))),
    "v_min3_i32": (3, lambda a, b, c: word(np.minimum(np.minimum(signed(a), signed(b)), signed(c)))),
    "v_min3_u32": (3, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "v_med3_u32": (3, lambda a, b, c: np.sort(np.stack([a, b, c]), axis=0)[1]),
    "v_sad_u32": (3, lambda a, b, c: np.where(a > b, a - b, b - a) + c),
    "v_mul_hi_u32_u24_e32": (
        2,
        lambda a, b: word((a & U32(0xFFFFFF)).astype(np.uint64) * (b & U32(0xFFFFFF)) >> np.uint64(32)),
    ),
    "v_mul_hi_i32_i24_e32": (
        2,
        lambda a, b: word((signed((a << U32(8)).astype(U32)) >> 8) * (signed((b << U32(8)).astype(U32)) >> 8) >> 32),
    ),
    "v_mad_u32_u16": (3, lambda a, b, c: (a & LOW) * (b & LOW) + c),
    "v_mad_i32_i16": (3, lambda a, b, c: word(_s16(a) * _s16(b) + signed(c))),
    "v_mad_legacy_u16": (3, lambda a, b, c: ((a & LOW) * (b & LOW) + (c & LOW)) & LOW),
    "v_dot2_i32_i16": (3, lambda a, b, c: word(_s16(a) * _s16(b) + (signed(a) >> 16) * (signed(b) >> 16) + signed(c))),
    "v_dot2_u32_u16": (3, lambda a, b, c: (a & LOW) * (b & LOW) + (a >> U32(16)) * (b >> U32(16)) + c),
    "v_dot4_u32_u8": (
        3,
        lanewise(lambda a, b, c: (sum((a >> 8 * i & 255) * (b >> 8 * i & 255) for i in range(4)) + c) & 0xFFFFFFFF),
    ),
    "v_ffbh_i32_e32": (
        1,
        lanewise(
            lambda a: 32 - (a ^ (0xFFFFFFFF if a >> 31 else 0)).bit_length() if a not in (0, 0xFFFFFFFF) else 0xFFFFFFFF
        ),
    ),
    "v_cvt_f32_ubyte1_e32": (1, lambda a: (a >> U32(8) & U32(255)).astype(np.float32).view(U32)),
    "v_cvt_f32_ubyte2_e32": (1, lambda a: (a >> U32(16) & U32(255)).astype(np.float32).view(U32)),
    "v_alignbyte_b32": (3, lanewise(lambda a, b, c: (a << 32 | b) >> 8 * (c & 3) & 0xFFFFFFFF)),
}
THREE: dict[str, Callable[[Array], Array]] = {
    "max": lambda rows: rows.max(0),
    "min": lambda rows: rows.min(0),
    "med": lambda rows: np.sort(rows, 0)[1],
}


def _three(f: Callable[[Array], Array], kind: str) -> Callable[[Array, Array, Array], Array]:
    def work(*given: Array) -> Array:
        rows = np.stack([x & LOW if kind == "u" else _s16(x) for x in given])
        return word(f(rows.astype(np.int64))) & LOW

    return work


HALVES = [
    *(Case(f"{name} v20, v10, v11", "ii", "i", f) for name, f in INTEGER_16.items()),
    *(Case(f"{name} v20, v10, v11", "ii", "i", _both(f)) for name, f in PACKED_16.items()),
    *(Case(f"{name} v20, v10", "h", "h", _wide(f)) for name, f in UNARY_16.items()),
    *(
        Case(f"{name} v20, {', '.join(f'v{10 + i}' for i in range(count))}", "i" * count, "i", f)
        for name, (count, f) in INTEGER.items()
    ),
    *(
        Case(f"v_{name}3_{kind}16 v20, v10, v11, v12", "iii", "i", _three(f, kind))
        for name, f in THREE.items()
        for kind in "ui"
    ),
    Case("v_pk_mad_u16 v20, v10, v11, v12", "iii", "i", _both(lambda a, b, c: a * b + c)),
    Case("v_pk_mad_i16 v20, v10, v11, v12", "iii", "i", _both(lambda a, b, c: a * b + c)),
    Case("v_max_f16_e32 v20, v10, v11", "hh", "h", _pick(np.maximum)),
    Case("v_min_f16_e32 v20, v10, v11", "hh", "h", _pick(np.minimum)),
    Case("v_subrev_f16_e32 v20, v10, v11", "hh", "h", _f16(lambda a, b: b - a)),
    Case("v_cvt_f16_i16_e32 v20, v10", "i", "h", lambda a: half_bits(_s16(a).astype(np.float32))),
    Case(
        "v_mov_b32_e32 v20, v12\nv_fmac_f16_e32 v20, v10, v11",
        "hhh",
        "p",
        lambda a, b, c: half_bits(fma(halves(a), halves(b), halves(c), 11, -14, np.float16)) | (c & U32(0xFFFF0000)),
        target="gfx1100",
    ),
    Case("v_mov_b32_e32 v20, v12\nv_fmac_f32_e32 v20, v10, v11", "fff", "f", fma),
    Case(
        "v_dot2_f32_f16 v20, v10, v11, v12",
        "hhn",
        "f",
        lambda a, b, c: fma(
            halves(a, 1).astype(np.float32),
            halves(b, 1).astype(np.float32),
            fma(halves(a).astype(np.float32), halves(b).astype(np.float32), c),
        ),
    ),
    Case(
        "v_cvt_pk_bf16_f32 v20, v10, v11", "ff", "i", lambda a, b: _bfloat(a) | _bfloat(b) << U32(16), target="gfx950"
    ),
    Case(
        "v_cvt_pk_f16_f32 v20, v10, v11",
        "ff",
        "p",
        lambda a, b: half_bits(a) | half_bits(b) << U32(16),
        target="gfx950",
    ),
]
