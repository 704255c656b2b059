"""Inputs of instruction tests, and exact arithmetic to compare with, independent of the executor's C++."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
LANES = 64
SPECIAL_F32 = [0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x80000001, 0x007FFFFF]
SPECIAL_F32 += [0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F000000, 0x40200000, 0x4B000001, 0x4F000000, 0xCF000001]
SPECIAL_I32 = [0, 1, 2, 31, 32, 33, 63, 64, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE]


def words(kind: str, seed: int) -> Array:
    """64 lanes of a kind: f (float32), i (integers), s (small integers), d, q (64-bit, two rows), h (halves)."""
    rng = np.random.default_rng(seed)
    if kind == "f":
        found = rng.normal(size=LANES).astype(np.float32) * np.float32(2) ** rng.integers(-20, 20, LANES).astype(
            np.float32
        )
        bits = found.view(np.uint32)
        places = rng.permutation(LANES)[: len(SPECIAL_F32)]
        bits[places] = SPECIAL_F32
        return bits[None]
    if kind == "n":  # plain float32
        return rng.normal(size=LANES).astype(np.float32).view(np.uint32)[None]
    if kind == "i":
        found = rng.integers(0, 1 << 32, LANES, dtype=np.uint64).astype(np.uint32)
        found[rng.permutation(LANES)[: len(SPECIAL_I32)]] = SPECIAL_I32
        return found[None]
    if kind == "s":
        return rng.integers(0, 64, LANES).astype(np.uint32)[None]
    if kind == "h":
        both = rng.integers(0, 1 << 32, LANES, dtype=np.uint64).astype(np.uint32)
        both[:8] = [0x3C00BC00, 0x7C00FC00, 0x7E000001, 0x80000000, 0x7BFF7BFF, 0x04000400, 0x3C013C01, 0xFBFF0000]
        return both[None]
    if kind == "d":
        numbers = rng.normal(size=LANES) * 2.0 ** rng.integers(-40, 40, LANES)
        numbers[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 5e-324, -1.5e308]
        pairs = numbers.view(np.uint64)
    else:
        pairs = rng.integers(0, 1 << 64, LANES, dtype=np.uint64)
        pairs[:4] = [0, 1, 0xFFFFFFFFFFFFFFFF, 1 << 63]
    return np.stack([pairs.astype(np.uint32), (pairs >> np.uint64(32)).astype(np.uint32)])


def view(rows: Array, kind: str) -> Array:
    """Rows as numbers of their kind."""
    if kind in "fn":
        return rows[0].view(np.float32)
    if kind in "dq":
        pairs = rows[0].astype(np.uint64) | rows[1].astype(np.uint64) << np.uint64(32)
        return pairs.view(np.float64) if kind == "d" else pairs
    return rows[0]


def halves(x: Array, high: int = 0) -> Array:
    """The low (or high) halves of words as float16."""
    return (x >> np.uint32(16 * high) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)


def half_bits(x: Array) -> Array:
    """float16 as words."""
    return x.astype(np.float16).view(np.uint16).astype(np.uint32)


def signed(x: Array) -> Array:
    """Words as int64 of their signed value."""
    return x.astype(np.uint32).view(np.int32).astype(np.int64)


def word(x: Array) -> Array:
    """int64 cut to 32 bits."""
    return (x.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def rounded(exact: Fraction, mantissa: int, least: int) -> float:
    """The nearest float with that many mantissa bits (ties to even) and exponents from `least` on; no overflow."""
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - mantissa + 1)
    return float(np.sign(float(exact)) * float(round(size / unit) * unit))


def fma(a: Array, b: Array, c: Array, mantissa: int = 24, least: int = -126, dtype: type = np.float32) -> Array:
    """a * b + c rounded once, lane by lane in exact fractions."""
    out = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(dtype)
    for i in range(len(a)):
        if np.isfinite([a[i], b[i], c[i]]).all() and np.isfinite(out[i]):
            exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
            if exact:
                out[i] = dtype(rounded(exact, mantissa, least))
    return out


def lanewise(f: Callable[..., Any], dtype: type = np.uint32) -> Callable[..., Array]:
    """A function of Python numbers, applied lane by lane."""
    return lambda *args: np.array([f(*(x.item() for x in lane)) for lane in zip(*args, strict=True)], dtype)


def same(found: Array, expected: Array, kind: str, ulps: int = 0) -> Array:
    """By lane, whether results agree: bits, any NaN for a NaN, and within so many ulps for floats."""
    if kind == "f":
        a, b = found.view(np.float32), expected.view(np.float32)
        both_nan = np.isnan(a) & np.isnan(b)
        near = np.abs(_ordered(found) - _ordered(expected)) <= ulps
        return np.asarray(both_nan | near)
    if kind == "h":
        a, b = halves(found), halves(expected)
        return np.asarray((found == expected) | (np.isnan(a) & np.isnan(b)))
    if kind == "p":
        return same(found & np.uint32(0xFFFF), expected & np.uint32(0xFFFF), "h") & same(
            found >> 16, expected >> 16, "h"
        )
    return np.asarray(found == expected)


def _ordered(bits: Array) -> Array:
    magnitude = (bits & np.uint32(0x7FFFFFFF)).astype(np.int64)
    return np.where(bits >> np.uint32(31), -magnitude, magnitude)
