"""Values of the float families: each draws an array for one leaf, of which only shape and dtype are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hipwright.float8 import FLOAT8

F64 = npt.NDArray[np.float64]
Rng = np.random.Generator

SHIFT = 30.0  # mean of the shifted family, in standard deviations
OUTLIER_SHARE = 1e-3
SPIKE = 40.0  # height of the spikes family's large terms, in standard deviations
TINY = {"": (1e-4, 1e-13), "float16": (1e-3, 1e-7)} | dict.fromkeys(FLOAT8, (0.25, 0.01))
"""The largest and the smallest scale of the `tiny` family; 1e-12 is torch's own epsilon of `normalize`."""
WHOLE = {"float64": 1023, "float32": 1023, "float16": 255, "bfloat16": 63} | dict.fromkeys(FLOAT8, 7)
"""Largest whole number of the `exact` family: every one up to it is a value of the dtype."""


PAIR, PAIRED_ROWS = 2047.0, 32  # of the `exact` family in float16, whose numbers above 2048 are even


class LeafForm(NamedTuple):
    """Shape and dtype of the leaf to draw."""

    shape: tuple[int, ...]
    dtype: str


def generator(seed: int, *parts: object) -> Rng:
    """Philox keyed by the parts: equal parts give equal streams on every machine."""
    digest = hashlib.sha256("\x1f".join(map(str, (seed, *parts))).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def _uniform(rng: Rng, like: LeafForm) -> F64:
    return rng.uniform(-1.0, 1.0, like.shape)


def _normal(rng: Rng, like: LeafForm) -> F64:
    return rng.standard_normal(like.shape)


def _shifted(rng: Rng, like: LeafForm) -> F64:
    return rng.standard_normal(like.shape) + SHIFT


def _outliers(rng: Rng, like: LeafForm) -> F64:
    values = rng.standard_normal(like.shape).reshape(-1)
    count = max(1, int(values.size * OUTLIER_SHARE)) if values.size else 0
    if not count:
        return values.reshape(like.shape)
    where = rng.choice(values.size, count, replace=False)
    values[where] = rng.uniform(20.0, 100.0, count) * rng.choice([-1.0, 1.0], count)
    return values.reshape(like.shape)


def _tiny(rng: Rng, like: LeafForm) -> F64:
    """Small values: every second row of one scale, the others each of its own or of one for each element.

    The scales lie below 1e-4 (1e-3 in float16), drawn by their logarithms, so that a threshold or an epsilon anywhere
    below decides for some rows and some elements.
    """
    most, least = TINY.get(like.dtype, TINY[""])
    values = rng.standard_normal(like.shape) * most
    if not like.shape or not values.size:
        return values
    rows = values.reshape(-1, like.shape[-1])
    rows[1::4] *= 10.0 ** -rng.uniform(0.0, np.log10(most / least), (rows[1::4].shape[0], 1))
    rows[3::4] *= 10.0 ** -rng.uniform(0.0, np.log10(most / least), rows[3::4].shape)
    return values


def _scales(rng: Rng, like: LeafForm) -> F64:
    """Every element of its own magnitude, from 1e-7 to 1: a threshold anywhere decides for some of few elements."""
    return rng.choice([-1.0, 1.0], like.shape) * 10.0 ** -rng.uniform(0.0, 7.0, like.shape)


def _zeros90(rng: Rng, like: LeafForm) -> F64:
    return rng.standard_normal(like.shape) * (rng.random(like.shape) < 0.1)


def _constant_rows(rng: Rng, like: LeafForm) -> F64:
    """Rows of one value each, a quarter of them (the first among them) of zeros: variances and norms are zero."""
    if not like.shape:
        return rng.standard_normal(())
    rows = rng.standard_normal((*like.shape[:-1], 1))
    zero = rng.random(rows.shape) < 0.25
    zero.reshape(-1)[:1] = True
    return np.broadcast_to(np.where(zero, 0.0, rows), like.shape).copy()


def _sorted(rng: Rng, like: LeafForm) -> F64:
    values = rng.standard_normal(like.shape)
    return np.sort(values, axis=-1) if like.shape else values


def _cancelling(rng: Rng, like: LeafForm) -> F64:
    values = rng.standard_normal(like.shape).reshape(-1)
    half = values.size // 2
    values[1 : 2 * half : 2] = -values[0 : 2 * half : 2]
    return (values + 1e-3 * rng.standard_normal(values.size)).reshape(like.shape)


def _mantissa(rng: Rng, like: LeafForm) -> F64:
    """+-(1 + 2^-k): bits that a conversion to a shorter format would lose."""
    low, high = ({"float16": (5, 11), "bfloat16": (3, 8)} | dict.fromkeys(FLOAT8, (1, 3))).get(like.dtype, (11, 24))
    steps = 2.0 ** -rng.integers(low, high, like.shape).astype(np.float64)
    return rng.choice([-1.0, 1.0], like.shape) * (1.0 + steps)


def _ties(rng: Rng, like: LeafForm) -> F64:
    return rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], like.shape)


def _denormals(rng: Rng, like: LeafForm) -> F64:
    values = rng.standard_normal(like.shape)
    small = 1e-3 if like.dtype in FLOAT8 else 1e-6 if like.dtype == "float16" else 1e-40
    return np.where(rng.random(like.shape) < 0.5, values * small, values)


def _spikes(rng: Rng, like: LeafForm) -> F64:
    """Normal values with one large term a row, at positions that differ from row to row.

    R rows of n elements hit min(R, n) positions of the last axis, so that a program that leaves out one position of it
    loses a large term with probability min(1, R / n).
    """
    values = rng.standard_normal(like.shape)
    if not like.shape or not values.size:
        return values
    rows = values.reshape(-1, like.shape[-1])
    order = np.concatenate([rng.permutation(rows.shape[1]) for _ in range(-(-rows.shape[0] // rows.shape[1]))])
    rows[np.arange(rows.shape[0]), order[: rows.shape[0]]] = SPIKE * (1.0 + rng.random(rows.shape[0]))
    return values


def _exact(rng: Rng, like: LeafForm) -> F64:
    """Whole numbers whose sums along every axis nearly cancel, so that each term is large beside the result.

    Differences along every axis (which sum to 0 there) of whole numbers, plus a few small ones, in a drawn order of the
    last axis, so that partial sums are large. Sums of them are exact in every order, so the result has no rounding at
    all, and one term left out, or an accumulator of fewer digits, changes it by much more than its budget.
    """
    axes = [axis for axis, size in enumerate(like.shape) if size > 1]
    most = max(WHOLE.get(like.dtype, 63) >> len(axes), 1)
    values = rng.integers(1, most + 1, like.shape).astype(np.float64) * rng.choice([-1.0, 1.0], like.shape)
    for axis in axes:
        values = values - np.roll(values, 1, axis)
    empty = np.flatnonzero(values == 0)  # no term is 0, so that each one counts; they cancel in turn
    values.reshape(-1)[empty] = np.where(np.arange(empty.size) % 2, -1.0, 1.0)
    few = rng.random(like.shape) < 2.0 / max(like.shape[-1] if like.shape else 1, 4)
    out: F64 = values + few * rng.integers(1, 4, like.shape)
    if not axes or like.shape[-1] < 2:
        return out
    out = np.ascontiguousarray(out[..., rng.permutation(like.shape[-1])])
    return _with_pairs(rng, out) if like.dtype == "float16" else out


def _with_pairs(rng: Rng, values: F64) -> F64:
    """Values with two terms in some rows that cancel, to which float16 cannot add one; a third keeps the row's sum."""
    rows = values.reshape(-1, values.shape[-1])
    for row in rng.permutation(len(rows))[:PAIRED_ROWS] if rows.shape[1] > 2 else ():
        one, other, third = rng.choice(rows.shape[1], 3, replace=False)
        rows[row, third] += rows[row, one] + rows[row, other]
        rows[row, [one, other]] = PAIR, -PAIR
    return values


FLOAT_FAMILIES: dict[str, Callable[[Rng, LeafForm], F64]] = {
    "normal": _normal,
    "uniform": _uniform,
    "shifted": _shifted,
    "outliers": _outliers,
    "tiny": _tiny,
    "large": _normal,
    "scales": _scales,
    "zeros90": _zeros90,
    "constant_rows": _constant_rows,
    "sorted": _sorted,
    "cancelling": _cancelling,
    "mantissa": _mantissa,
    "ties": _ties,
    "denormals": _denormals,
    "spikes": _spikes,
    "exact": _exact,
}
"""Families of values for every free float leaf. "large" and "scales" are scaled by the domain's `large`."""

MIXED = (
    "large",
    "shifted",
    "cancelling",
    "outliers",
    "constant_rows",
    "spikes",
    "tiny",
    "ties",
    "denormals",
)
"""What the slices of the mixed families hold in turn: at the task's own shapes one run shows what each family would."""
MIXED_AXES = {"mixed_first": 0, "mixed_last": -1, "mixed_middle": 1}


def mixed(rng: Rng, like: LeafForm, axis: int, large: float) -> F64:
    """Values whose slices along an axis belong to the families of `MIXED` in turn."""
    if not like.shape or not all(like.shape):
        return rng.standard_normal(like.shape)
    axis = axis if -len(like.shape) <= axis < len(like.shape) else -1
    out = np.moveaxis(np.empty(like.shape), axis, 0)
    for first, family in enumerate(MIXED):
        part = out[first :: len(MIXED)]
        if part.size:
            shape = list(like.shape)
            shape[axis] = part.shape[0]
            drawn = np.moveaxis(FLOAT_FAMILIES[family](rng, LeafForm(tuple(shape), like.dtype)), axis, 0)
            part[...] = drawn * large if family == "large" else drawn
    return np.moveaxis(out, 0, axis)
