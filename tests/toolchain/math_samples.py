"""Arguments to sweep a function with, and errors in units of the last place."""

from __future__ import annotations

import os
from typing import Any

import mpmath as mp
import numpy as np

COUNT = 600  # samples a function and range


def log_uniform(rng: np.random.Generator, lo: float, hi: float, n: int) -> np.ndarray:
    return np.exp(rng.uniform(np.log(lo), np.log(hi), n)) * rng.choice([-1.0, 1.0], n)


Range = tuple[str, float, float]


def L(lo: float, hi: float) -> Range:
    """Both signs, magnitudes spread evenly over the exponents."""
    return ("log", lo, hi)


def P(lo: float, hi: float) -> Range:
    """Positive only, like L."""
    return ("positive", lo, hi)


def U(lo: float, hi: float) -> Range:
    """Evenly spread."""
    return ("uniform", lo, hi)


def sample(rng: np.random.Generator, kind: Range, dtype: type) -> np.ndarray:
    name, lo, hi = kind
    if dtype is np.float32:
        lo, hi = np.clip([lo, hi], -1e37, 1e37)
        if name != "uniform":
            lo = max(lo, 1e-37)
    n = COUNT * int(os.environ.get("HIPWRIGHT_MATH_SAMPLES", "1"))
    if name == "uniform":
        return rng.uniform(lo, hi, n).astype(dtype)
    x = log_uniform(rng, lo, hi, n).astype(dtype)
    return np.abs(x) if name == "positive" else x


def ulps(got: np.ndarray, want: list[Any]) -> np.ndarray:
    """|got - want| in units of the last place of `want`, 0 where both overflow or the result is subnormal enough."""
    info = np.finfo(got.dtype)
    digits, least = info.nmant, mp.mpf(float(info.smallest_normal)) * mp.mpf(2) ** -info.nmant
    errors = []
    for g, w in zip(got.tolist(), want, strict=True):
        w = mp.re(w)
        if abs(w) > mp.mpf(float(info.max)):
            errors.append(0.0 if np.isinf(g) else np.inf)
            continue
        exponent = mp.frexp(w)[1] - 1 if w else -2000
        unit = max(mp.mpf(2) ** (exponent - digits), least)
        errors.append(float(abs(mp.mpf(g) - w) / unit) if np.isfinite(g) else np.inf)
    return np.array(errors)
