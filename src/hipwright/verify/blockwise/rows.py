"""The honest error of every element and the budgets made of it, block by block (`tolerance.strict_rule`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from hipwright.task.nudges import NUDGES
from hipwright.tensors import HostTensor
from hipwright.verify.blockwise.blocks import FlatValues, row_blocks, spread
from hipwright.verify.expected import F64, Mask


@dataclass(frozen=True)
class HonestRows:
    """What a leaf's honest runs say.

    want: the float64 reference, in the leaf's shape; honest: each element's honest error, flat, NaN where it is not
    used. scale, spent: the rms of each row of `want` and of `honest`, unused elements as zeros. judged: as in Rule.
    """

    want: F64
    honest: F64
    scale: F64
    spent: F64
    judged: Mask | None
    length: int


def honest_rows(
    native: HostTensor, exact: HostTensor, nudged: Sequence[HostTensor], redrawn: F64 | None, length: int
) -> HonestRows:
    """The errors that an honest kernel makes: the largest of the baseline's, of what the nudges move, and of other
    draws. Arguments: as of `tolerance.strict_rule`.

    A nudged result that is not finite says nothing.
    """
    base, true = FlatValues(native), FlatValues(exact)
    moved = [(abs(nudge.size), FlatValues(tensor)) for nudge, tensor in zip(NUDGES, nudged, strict=False)]
    other = None if redrawn is None else redrawn.reshape(-1)
    want, honest = np.empty(true.size), np.empty(true.size)
    scale, spent = np.empty(true.size // length), np.empty(true.size // length)
    unjudged: dict[int, Mask] = {}

    def block(place: slice) -> None:
        here, mine = want[place], honest[place]
        here[...] = true.block(place)
        own = base.block(place)
        with np.errstate(invalid="ignore", over="ignore"):
            np.abs(np.subtract(own, here, out=mine), out=mine)
            for size, values in moved:
                _raise(mine, values.block(place), here, size)
            if other is not None:
                np.maximum(mine, other[place], out=mine)
        finite = np.isfinite(here) & np.isfinite(own)
        usable = finite & np.isfinite(mine)
        whole = bool(usable.all())
        if not whole:
            judged = finite | (_kind(here) == _kind(own))
            if not judged.all():
                unjudged[place.start] = judged
            mine[~usable] = np.nan
        rows = slice(place.start // length, place.stop // length)
        scale[rows] = row_rms(here if whole else np.where(usable, here, 0.0), length)
        spent[rows] = row_rms(mine if whole else np.where(usable, mine, 0.0), length)

    spread(block, row_blocks(true.size, length))
    shape = exact.values_shape
    return HonestRows(want.reshape(shape), honest, scale, spent, _whole_mask(unjudged, shape), length)


def _raise(honest: F64, values: F64, want: F64, size: float) -> None:
    change = np.subtract(values, want)
    np.abs(change, out=change)
    change /= size
    infinite = np.isinf(change)
    if infinite.any():
        change[infinite] = np.nan
    np.fmax(honest, change, out=honest)


def _whole_mask(unjudged: dict[int, Mask], shape: Sequence[int]) -> Mask | None:
    if not unjudged:
        return None
    judged = np.ones(prod(shape), np.bool_)
    for start, mask in unjudged.items():
        judged[start : start + mask.size] = mask
    return judged.reshape(shape)


def element_budgets(found: HonestRows, row: F64, *, c: float, lowest: float, element: float) -> F64:
    """The budget of each element, in the memory of `found.honest`.

    row: the rows' budgets; c, lowest: the share of its honest error and of itself that an element may lose besides;
    element: how many row budgets one element may be off. A budget may be infinite near the largest numbers.
    """
    want, budgets = found.want.reshape(-1), found.honest

    def block(place: slice) -> None:
        own = budgets[place]
        unused = np.isnan(own)
        with np.errstate(over="ignore", invalid="ignore"):
            own *= c
            least = np.abs(want[place])
            least *= lowest
            own += least
            if unused.any():
                own[unused] = 0.0
            by_row = row[place.start // found.length : place.stop // found.length, None]
            grid = own.reshape(-1, found.length)
            grid += by_row
            np.maximum(element * by_row, grid, out=grid)

    spread(block, row_blocks(want.size, found.length))
    return budgets.reshape(found.want.shape)


def row_rms(values: F64, length: int) -> F64:
    """Root mean square of each row of `length` elements."""
    rows = values.reshape(-1, length)
    parts = np.abs(rows)
    largest = np.max(parts, axis=1, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)  # squares of fp64 extremes would overflow
    np.divide(parts, safe[:, None], out=parts)
    np.multiply(parts, parts, out=parts)
    out: F64 = largest * np.sqrt(np.mean(parts, axis=1))
    return out


def _kind(values: F64) -> npt.NDArray[np.int8]:
    """0 finite, 1 NaN, 2 +Inf, 3 -Inf."""
    return np.isnan(values) + np.int8(2) * np.isposinf(values) + np.int8(3) * np.isneginf(values)
