"""Comparisons of whole leaves in blocks: what is within every budget, and what is wrong for certain."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hipwright.tensors import HostTensor
from hipwright.verify.blockwise.blocks import FlatValues, row_blocks, spread
from hipwright.verify.expected import F64, Rule

SCREENED = 4  # blocks that are looked at for an answer that is wrong everywhere


def worst_within(got: HostTensor, rule: Rule) -> tuple[int, float, float] | None:
    """(flat place, error over budget, value) of the worst element of a leaf that is finite and within every budget, as
    nearly all are; None for any other leaf.
    """
    if rule.judged is not None or rule.element is None:
        return None
    values, expected, budgets = FlatValues(got), rule.expected.reshape(-1), rule.element.reshape(-1)
    found: dict[int, tuple[int, float, float]] = {}
    outside = threading.Event()

    def block(place: slice) -> None:
        if outside.is_set():
            return
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            own = values.block(place)
            error = np.subtract(own, expected[place])
            np.abs(error, out=error)
            ratio = error / budgets[place]
            at = int(ratio.argmax())  # of a NaN, where there is one
            within = float(ratio[at]) <= 1.0 and _rows_within(error, rule, place)
        if within:
            found[place.start] = place.start + at, float(ratio[at]), float(own[at])
        else:
            outside.set()

    spread(block, row_blocks(expected.size, rule.row_length))
    return None if outside.is_set() else min(found.values(), key=lambda one: (-one[1], one[0]))


def _rows_within(error: F64, rule: Rule, place: slice) -> bool:
    if rule.row is None:
        return True
    rows, row = error.reshape(-1, rule.row_length), rule.row[place.start // rule.row_length :]
    square = np.einsum("ij,ij->i", rows, rows) / rule.row_length
    own = row[: square.size]
    return bool(((square <= own * own) & np.isfinite(square)).all())  # a square that overflows says nothing


def surely_wrong(answer: Callable[[slice], npt.NDArray[np.generic]], rule: Rule) -> bool:
    """Whether a few blocks of an answer show that it cannot pass: an element beyond every relief of its row.

    answer(block): its values there, float64, or bits for an exact rule. False says nothing.
    """
    expected = rule.expected.reshape(-1)
    blocks = row_blocks(expected.size, rule.row_length)
    if rule.gather is not None or len(blocks) <= SCREENED:
        return False
    return any(_wrong_in(place, answer(place), rule) for place in blocks[:: max(len(blocks) // SCREENED, 1)])


def _wrong_in(place: slice, values: npt.NDArray[np.generic], rule: Rule) -> bool:
    expected = rule.expected.reshape(-1)[place]
    if rule.element is None:
        wrong = values.astype(expected.dtype, copy=False) != expected  # as the answer would be stored
    else:
        wrong = _beyond(place, values.astype(np.float64, copy=False), expected, rule)
    if rule.judged is not None:
        wrong &= rule.judged.reshape(-1)[place]
    return bool(wrong.any())


def _beyond(place: slice, values: F64, expected: F64, rule: Rule) -> npt.NDArray[np.bool_]:
    assert rule.element is not None
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.abs(values - expected)
        ratio = np.where(np.isfinite(error), error, 0.0) / rule.element.reshape(-1)[place]
        if rule.lift is not None:
            lift = rule.lift[place.start // rule.row_length : place.stop // rule.row_length]
            ratio = (ratio.reshape(-1, rule.row_length) / np.maximum(lift, 1.0)[:, None]).reshape(-1)
    found: npt.NDArray[np.bool_] = (ratio > 1.0) | (np.isnan(values) != np.isnan(expected))
    return found


def finite_part(values: F64) -> tuple[float, float]:
    """(share of finite values, the largest magnitude among them, 0 without one). values: at least one."""
    flat = values.reshape(-1)
    counts: dict[int, int] = {}
    tops: dict[int, float] = {}

    def block(place: slice) -> None:
        here = flat[place]
        finite = np.isfinite(here)
        counts[place.start] = int(finite.sum())
        kept = here if counts[place.start] == here.size else here[finite]
        tops[place.start] = float(np.abs(kept).max(initial=0.0))

    spread(block, row_blocks(flat.size, 1))
    return sum(counts.values()) / flat.size, max(tops.values())
