"""Floats of 8, 6 and 4 bits as matrices in the registers of matrix instructions."""

from __future__ import annotations

import numpy as np

from hipwright.float8 import from_float8

FNUZ = {"fp8": "float8_e4m3fnuz", "bf8": "float8_e5m2fnuz"}
OCP = {"fp8": "float8_e4m3fn", "bf8": "float8_e5m2"}
FORMATS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
"""Elements of scaled instructions, in the order of their numbers in cbsz and blgp, and their bits."""


def values_of(kind: str, target: str) -> np.ndarray:
    """The values of all codes (OCP Microscaling Formats 1.0, section 5.3; OCP 8-bit Floating Point 1.0; FNUZ)."""
    if FORMATS[kind] == 8:
        return from_float8(np.arange(256), (FNUZ if target == "gfx942" else OCP)[kind])
    mantissa, bias = {"fp6": (3, 1), "bf6": (2, 3), "fp4": (1, 1)}[kind]
    half = 1 << (FORMATS[kind] - 1)
    code = np.arange(half)
    exponent, fraction = code >> mantissa, (code & ((1 << mantissa) - 1)) / 2.0**mantissa
    size = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent - bias), fraction * 2.0 ** (1 - bias))
    return np.concatenate([size, -size])


def codes(rng: np.random.Generator, kind: str, shape: tuple[int, ...], target: str) -> tuple[np.ndarray, np.ndarray]:
    """(codes, values), of magnitudes from 1/2 to 4, and zeros."""
    values = values_of(kind, target)
    usable = np.flatnonzero(((abs(values) >= 0.5) & (abs(values) <= 4)) | (values == 0))
    codes = rng.choice(usable, shape)
    return codes, values[codes]


def packed(elements: np.ndarray, bits: int) -> np.ndarray:
    """Registers (words, 64) of the elements (64, n) of each lane, the first in the lowest bits."""
    lanes = []
    for row in elements:
        number = sum(int(code) << (bits * n) for n, code in enumerate(row))
        lanes.append([number >> (32 * i) & 0xFFFFFFFF for i in range(len(row) * bits // 32)])
    return np.array(lanes, np.uint32).T.copy()


def lanes(codes: np.ndarray, two_runs: bool) -> np.ndarray:
    """Elements (64, n) of the lanes, from a matrix (M, K)."""
    size, depth = codes.shape
    each = depth * size // 64
    if not two_runs:
        return np.concatenate([codes[:, each * g : each * (g + 1)] for g in range(64 // size)])
    halves = np.split(codes, 2, axis=1)
    return np.concatenate([np.hstack([half[:, 16 * g : 16 * g + 16] for half in halves]) for g in range(64 // size)])
