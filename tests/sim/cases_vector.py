"""Vector instructions: an assembly line, the kinds of its inputs, and what it computes by the ISA documents, in NumPy.

Inputs are v10, v11, ... in order (64-bit ones take two registers), the result is v20 (and v21).
Kinds: values.words. Results: f float32, d float64, i a word, q 64 bits, h a half with zeros above, p two halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.sim.values import Array, fma, half_bits, halves, lanewise, signed, word

U32 = np.uint32


@dataclass(frozen=True)
class Case:
    """One instruction form. ulps: what a float result may differ by."""

    line: str
    kinds: str
    result: str
    expected: Callable[..., Array]
    ulps: int = 0
    target: str = "gfx942"

    @property
    def mnemonic(self) -> str:
        """The instruction's name."""
        return self.line.split()[0]


def _max(a: Array, b: Array) -> Array:
    greater = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.maximum(a, b)))
    zeros = (a == 0) & (b == 0)
    return np.where(zeros, np.where(np.signbit(a), b, a), greater).astype(a.dtype)


def _min(a: Array, b: Array) -> Array:
    return -_max(-a, -b)


def _shift(x: Array) -> Array:
    return x & U32(31)


def _flush(x: Array) -> Array:
    return np.where(np.abs(x) < np.float32(2) ** np.float32(-126), np.copysign(np.float32(0), x), x)


def _f64(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def work(x: Array) -> Array:
        return _flush(f(_flush(x).astype(np.float64)).astype(np.float32))

    return work


def _to_int(x: Array) -> Array:
    clean = np.where(np.isnan(x), 0, x).astype(np.float64)
    return word(np.trunc(np.clip(clean, -(2.0**31), 2.0**31 - 1)))


def _to_unsigned(x: Array) -> Array:
    clean = np.where(np.isnan(x), 0, x).astype(np.float64)
    return np.trunc(np.clip(clean, 0, 2.0**32 - 1)).astype(U32)


def _median(a: Array, b: Array, c: Array) -> Array:
    ordered = np.sort(np.stack([a, b, c]), axis=0)[1]
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), _min(_min(a, b), c), ordered).astype(np.float32)


def _ldexp(x: float, e: int) -> float:
    e = e - (1 << 32) if e >> 31 else e
    with np.errstate(over="ignore"):
        return float(np.float32(math.ldexp(x, max(min(e, 400), -400)))) if math.isfinite(x) else x


FLOAT = [
    Case("v_add_f32_e32 v20, v10, v11", "ff", "f", lambda a, b: a + b),
    Case("v_sub_f32_e32 v20, v10, v11", "ff", "f", lambda a, b: a - b),
    Case("v_subrev_f32_e32 v20, v10, v11", "ff", "f", lambda a, b: b - a),
    Case("v_mul_f32_e32 v20, v10, v11", "ff", "f", lambda a, b: a * b),
    Case("v_max_f32_e32 v20, v10, v11", "ff", "f", _max),
    Case("v_min_f32_e32 v20, v10, v11", "ff", "f", _min),
    Case("v_fma_f32 v20, v10, v11, v12", "fff", "f", fma),
    Case("v_fma_f32 v20, -v10, |v11|, v12", "fff", "f", lambda a, b, c: fma(-a, np.abs(b), c)),
    Case("v_mul_f32_e64 v20, v10, v11 mul:2", "ff", "f", lambda a, b: (a * b) * np.float32(2)),
    Case("v_mul_f32_e64 v20, v10, v11 div:2", "nn", "f", lambda a, b: (a * b) * np.float32(0.5)),
    Case("v_add_f32_e64 v20, v10, v11 clamp", "nn", "f", lambda a, b: np.clip(a + b, 0, 1).astype(np.float32)),
    Case("v_fmaak_f32 v20, v10, v11, 0x40490fdb", "ff", "f", lambda a, b: fma(a, b, np.full(64, np.pi, np.float32))),
    Case("v_fmamk_f32 v20, v10, 0x40490fdb, v11", "ff", "f", lambda a, b: fma(a, np.full(64, np.pi, np.float32), b)),
    Case("v_max3_f32 v20, v10, v11, v12", "nnn", "f", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    Case("v_min3_f32 v20, v10, v11, v12", "nnn", "f", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    Case("v_med3_f32 v20, v10, v11, v12", "nnn", "f", _median),
    Case("v_rcp_f32_e32 v20, v10", "f", "f", lambda a: np.float32(1) / a, 1),
    Case("v_rcp_iflag_f32_e32 v20, v10", "f", "f", lambda a: np.float32(1) / a, 1),
    Case("v_rsq_f32_e32 v20, v10", "f", "f", _f64(lambda x: 1 / np.sqrt(x)), 1),
    Case("v_sqrt_f32_e32 v20, v10", "f", "f", _f64(np.sqrt), 1),
    Case("v_exp_f32_e32 v20, v10", "f", "f", _f64(np.exp2), 1),
    Case("v_log_f32_e32 v20, v10", "f", "f", _f64(np.log2), 1),
    Case("v_sin_f32_e32 v20, v10", "n", "f", lambda a: np.sin(2 * np.pi * a.astype(np.float64)).astype(np.float32), 2),
    Case("v_cos_f32_e32 v20, v10", "n", "f", lambda a: np.cos(2 * np.pi * a.astype(np.float64)).astype(np.float32), 2),
    Case("v_trunc_f32_e32 v20, v10", "f", "f", np.trunc),
    Case("v_floor_f32_e32 v20, v10", "f", "f", np.floor),
    Case("v_ceil_f32_e32 v20, v10", "f", "f", np.ceil),
    Case("v_rndne_f32_e32 v20, v10", "f", "f", np.rint),
    Case("v_fract_f32_e32 v20, v10", "n", "f", lambda a: np.minimum(a - np.floor(a), np.float32(0.99999994))),
    Case("v_frexp_mant_f32_e32 v20, v10", "n", "f", lambda a: np.frexp(a)[0]),
    Case("v_frexp_exp_i32_f32_e32 v20, v10", "n", "i", lambda a: word(np.frexp(a)[1])),
    Case("v_ldexp_f32 v20, v10, v11", "ns", "f", lanewise(_ldexp, np.float32)),
    Case("v_mov_b32_e32 v20, 1.0", "", "f", lambda: np.full(64, 1, np.float32)),
    Case("v_add_f32_e32 v20, 0.15915494, v10", "n", "f", lambda a: a + np.float32(0.15915494)),
    Case("v_mul_legacy_f32 v20, v10, v11", "nn", "f", lambda a, b: a * b),
    Case("v_pk_add_f32 v[20:21], v[10:11], v[12:13]", "nnnn", "ff", lambda a, b, c, d: np.stack([a + c, b + d])),
    Case(
        "v_pk_mul_f32 v[20:21], v[10:11], v[12:13] op_sel:[1,0] op_sel_hi:[0,1]",
        "nnnn",
        "ff",
        lambda a, b, c, d: np.stack([b * c, a * d]),
    ),
    Case(
        "v_pk_fma_f32 v[20:21], v[10:11], v[12:13], v[14:15] neg_lo:[1,0,0] neg_hi:[0,0,1]",
        "nnnnnn",
        "ff",
        lambda a, b, c, d, e, f: np.stack([fma(-a, c, e), fma(b, d, -f)]),
    ),
    Case("v_pk_mov_b32 v[20:21], v[10:11], v[12:13] op_sel:[1,0]", "nnnn", "ff", lambda a, b, c, d: np.stack([b, c])),
]
DOUBLE = [
    Case("v_add_f64 v[20:21], v[10:11], v[12:13]", "dd", "d", lambda a, b: a + b),
    Case("v_mul_f64 v[20:21], v[10:11], v[12:13]", "dd", "d", lambda a, b: a * b),
    Case("v_max_f64 v[20:21], v[10:11], v[12:13]", "dd", "d", lambda a, b: np.fmax(a, b)),
    Case("v_min_f64 v[20:21], v[10:11], v[12:13]", "dd", "d", lambda a, b: np.fmin(a, b)),
    Case(
        "v_fma_f64 v[20:21], v[10:11], v[12:13], -v[14:15]",
        "ddd",
        "d",
        lambda a, b, c: fma(a, b, -c, 53, -1022, np.float64),
    ),
    Case("v_rcp_f64_e32 v[20:21], v[10:11]", "d", "d", lambda a: 1 / a),
    Case("v_rsq_f64_e32 v[20:21], v[10:11]", "d", "d", lambda a: 1 / np.sqrt(a)),
    Case("v_sqrt_f64_e32 v[20:21], v[10:11]", "d", "d", np.sqrt),
    Case("v_trunc_f64_e32 v[20:21], v[10:11]", "d", "d", np.trunc),
    Case("v_floor_f64_e32 v[20:21], v[10:11]", "d", "d", np.floor),
    Case("v_ceil_f64_e32 v[20:21], v[10:11]", "d", "d", np.ceil),
    Case("v_rndne_f64_e32 v[20:21], v[10:11]", "d", "d", np.rint),
    Case("v_ldexp_f64 v[20:21], v[10:11], v12", "ds", "d", lambda a, b: np.ldexp(a, b.astype(np.int32))),
    Case("v_frexp_mant_f64_e32 v[20:21], v[10:11]", "d", "d", lambda a: np.frexp(a)[0]),
    Case("v_cvt_f64_f32_e32 v[20:21], v10", "f", "d", lambda a: a.astype(np.float64)),
    Case("v_cvt_f32_f64_e32 v20, v[10:11]", "d", "f", lambda a: a.astype(np.float32)),
    Case("v_cvt_f64_i32_e32 v[20:21], v10", "i", "d", lambda a: signed(a).astype(np.float64)),
    Case("v_cvt_f64_u32_e32 v[20:21], v10", "i", "d", lambda a: a.astype(np.float64)),
    Case("v_cvt_i32_f64_e32 v20, v[10:11]", "d", "i", _to_int),
    Case("v_cvt_u32_f64_e32 v20, v[10:11]", "d", "i", _to_unsigned),
]
CONVERT = [
    Case("v_cvt_i32_f32_e32 v20, v10", "f", "i", _to_int),
    Case("v_cvt_u32_f32_e32 v20, v10", "f", "i", _to_unsigned),
    Case("v_cvt_f32_i32_e32 v20, v10", "i", "f", lambda a: signed(a).astype(np.float32)),
    Case("v_cvt_f32_u32_e32 v20, v10", "i", "f", lambda a: a.astype(np.float32)),
    Case("v_cvt_f32_ubyte0_e32 v20, v10", "i", "f", lambda a: (a & U32(255)).astype(np.float32)),
    Case("v_cvt_f32_ubyte3_e32 v20, v10", "i", "f", lambda a: (a >> U32(24)).astype(np.float32)),
    Case("v_cvt_flr_i32_f32_e32 v20, v10", "n", "i", lambda a: word(np.floor(a))),
    Case("v_cvt_f32_f16_e32 v20, v10", "h", "f", lambda a: halves(a).astype(np.float32)),
    Case(
        "v_cvt_f32_f16_sdwa v20, v10 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
        "h",
        "f",
        lambda a: halves(a, 1).astype(np.float32),
    ),
    Case("v_cvt_f16_f32_e32 v20, v10", "f", "h", half_bits),
    Case("v_cvt_f16_u16_e32 v20, v10", "i", "h", lambda a: half_bits((a & U32(0xFFFF)).astype(np.float32))),
    Case("v_cvt_pkrtz_f16_f32 v20, v10, v11", "nn", "p", lambda a, b: _toward_zero(a) | _toward_zero(b) << U32(16)),
    Case("v_pack_b32_f16 v20, v10, v11", "hh", "p", lambda a, b: (a & U32(0xFFFF)) | b << U32(16)),
]


def _toward_zero(x: Array) -> Array:
    h = x.astype(np.float16)
    above = np.abs(h.astype(np.float64)) > np.abs(x.astype(np.float64))
    return h.view(np.uint16).astype(U32) - above.astype(U32)


def _bfe(a: Array, b: Array, c: Array) -> Array:
    return (a >> _shift(b)) & ((np.uint64(1) << _shift(c).astype(np.uint64)) - np.uint64(1)).astype(U32)


def _perm(a: int, b: int, s: int) -> int:
    both = a << 32 | b
    out = 0
    for i in range(4):
        pick = s >> (8 * i) & 255
        if pick >= 13:
            byte = 255
        elif pick == 12:
            byte = 0
        elif pick >= 8:
            byte = 255 * (both >> (16 * (pick - 8) + 15) & 1)
        else:
            byte = both >> (8 * pick) & 255
        out |= byte << (8 * i)
    return out


def _i24(x: Array) -> Array:
    return signed((x << U32(8)).astype(U32)) >> 8


INTEGER = [
    Case("v_add_u32_e32 v20, v10, v11", "ii", "i", lambda a, b: a + b),
    Case("v_sub_u32_e32 v20, v10, v11", "ii", "i", lambda a, b: a - b),
    Case("v_subrev_u32_e32 v20, v10, v11", "ii", "i", lambda a, b: b - a),
    Case("v_and_b32_e32 v20, v10, v11", "ii", "i", lambda a, b: a & b),
    Case("v_or_b32_e32 v20, v10, v11", "ii", "i", lambda a, b: a | b),
    Case("v_xor_b32_e32 v20, v10, v11", "ii", "i", lambda a, b: a ^ b),
    Case("v_xnor_b32_e32 v20, v10, v11", "ii", "i", lambda a, b: ~(a ^ b)),
    Case("v_not_b32_e32 v20, v10", "i", "i", lambda a: ~a),
    Case("v_bfrev_b32_e32 v20, v10", "i", "i", lanewise(lambda a: int(f"{a:032b}"[::-1], 2))),
    Case("v_ffbl_b32_e32 v20, v10", "i", "i", lanewise(lambda a: (a & -a).bit_length() - 1 & 0xFFFFFFFF)),
    Case("v_ffbh_u32_e32 v20, v10", "i", "i", lanewise(lambda a: 32 - a.bit_length() if a else 0xFFFFFFFF)),
    Case("v_lshlrev_b32_e32 v20, v10, v11", "ii", "i", lambda a, b: b << _shift(a)),
    Case("v_lshrrev_b32_e32 v20, v10, v11", "ii", "i", lambda a, b: b >> _shift(a)),
    Case("v_ashrrev_i32_e32 v20, v10, v11", "ii", "i", lambda a, b: word(signed(b) >> _shift(a).astype(np.int64))),
    Case("v_mul_lo_u32 v20, v10, v11", "ii", "i", lambda a, b: a * b),
    Case("v_mul_hi_u32 v20, v10, v11", "ii", "i", lambda a, b: word(a.astype(np.uint64) * b >> np.uint64(32))),
    Case("v_mul_hi_i32 v20, v10, v11", "ii", "i", lambda a, b: word(signed(a) * signed(b) >> 32)),
    Case("v_mul_u32_u24_e32 v20, v10, v11", "ii", "i", lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF))),
    Case("v_mul_i32_i24_e32 v20, v10, v11", "ii", "i", lambda a, b: word(_i24(a) * _i24(b))),
    Case("v_mad_u32_u24 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)) + c),
    Case("v_mad_i32_i24 v20, v10, v11, v12", "iii", "i", lambda a, b, c: word(_i24(a) * _i24(b) + signed(c))),
    Case("v_max_u32_e32 v20, v10, v11", "ii", "i", np.maximum),
    Case("v_min_u32_e32 v20, v10, v11", "ii", "i", np.minimum),
    Case("v_max_i32_e32 v20, v10, v11", "ii", "i", lambda a, b: word(np.maximum(signed(a), signed(b)))),
    Case("v_min_i32_e32 v20, v10, v11", "ii", "i", lambda a, b: word(np.minimum(signed(a), signed(b)))),
    Case("v_max3_u32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    Case(
        "v_med3_i32 v20, v10, v11, v12",
        "iii",
        "i",
        lambda a, b, c: word(np.sort(np.stack([signed(a), signed(b), signed(c)]), axis=0)[1]),
    ),
    Case("v_bcnt_u32_b32 v20, v10, v11", "ii", "i", lanewise(lambda a, b: a.bit_count() + b & 0xFFFFFFFF)),
    Case("v_add3_u32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: a + b + c),
    Case("v_lshl_add_u32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a << _shift(b)) + c),
    Case("v_add_lshl_u32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a + b) << _shift(c)),
    Case("v_lshl_or_b32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a << _shift(b)) | c),
    Case("v_and_or_b32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a & b) | c),
    Case("v_or3_b32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: a | b | c),
    Case("v_xad_u32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a ^ b) + c),
    Case("v_bfi_b32 v20, v10, v11, v12", "iii", "i", lambda a, b, c: (a & b) | (~a & c)),
    Case("v_bfe_u32 v20, v10, v11, v12", "iii", "i", _bfe),
    Case("v_bfe_i32 v20, v10, 4, 12", "i", "i", lambda a: word(signed((a << U32(16)).astype(U32)) >> 20)),
    Case("v_bfm_b32 v20, v10, v11", "ii", "i", lambda a, b: ((U32(1) << _shift(a)) - U32(1)) << _shift(b)),
    Case("v_perm_b32 v20, v10, v11, s8", "ii", "i", lanewise(lambda a, b: _perm(a, b, 0x070D0400))),
    Case(
        "v_alignbit_b32 v20, v10, v11, v12",
        "iii",
        "i",
        lanewise(lambda a, b, c: (a << 32 | b) >> (c & 31) & 0xFFFFFFFF),
    ),
    Case("v_lshlrev_b64 v[20:21], v12, v[10:11]", "qi", "q", lambda a, b: a << (b & U32(63)).astype(np.uint64)),
    Case("v_lshrrev_b64 v[20:21], v12, v[10:11]", "qi", "q", lambda a, b: a >> (b & U32(63)).astype(np.uint64)),
    Case(
        "v_ashrrev_i64 v[20:21], v12, v[10:11]",
        "qi",
        "q",
        lambda a, b: (a.view(np.int64) >> (b & U32(63)).astype(np.int64)).view(np.uint64),
    ),
    Case("v_mov_b64_e32 v[20:21], v[10:11]", "q", "q", lambda a: a),
    Case("v_lshl_add_u64 v[20:21], v[10:11], 3, v[12:13]", "qq", "q", lambda a, b: (a << np.uint64(3)) + b),
    Case(
        "v_mad_u64_u32 v[20:21], s[20:21], v10, v11, v[12:13]",
        "iiq",
        "q",
        lambda a, b, c: a.astype(np.uint64) * b.astype(np.uint64) + c,
    ),
    Case(
        "v_mad_i64_i32 v[20:21], s[20:21], v10, v11, v[12:13]",
        "iiq",
        "q",
        lambda a, b, c: (signed(a) * signed(b)).view(np.uint64) + c,
    ),
    Case(
        "v_add_u32_sdwa v20, v10, v11 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2 src1_sel:WORD_0",
        "ii",
        "i",
        lambda a, b: (((a >> U32(16) & U32(255)) + (b & U32(0xFFFF))) & U32(0xFFFF)) << U32(16),
    ),
    Case(
        "v_and_b32_sdwa v20, v10, sext(v11) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:BYTE_1",
        "ii",
        "i",
        lambda a, b: a & word(signed((b << U32(16)).astype(U32)) >> 24),
    ),
    Case("v_mbcnt_lo_u32_b32 v20, -1, 0\nv_mbcnt_hi_u32_b32 v20, -1, v20", "", "i", lambda: np.arange(64, dtype=U32)),
    Case("v_accvgpr_write_b32 a0, v10\nv_accvgpr_read_b32 v20, a0", "i", "i", lambda a: a),
]
VECTOR = [*FLOAT, *DOUBLE, *CONVERT, *INTEGER]
