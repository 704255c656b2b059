"""Masks that a graph builds from positions alone and that are bands: a query sees the keys from some before its place
to some after it.

A mask is a function of comparisons of positions. It is a band where it lets a key be seen exactly if some of them hold
and some do not, and each of these bounds the distance of the key from the query on one side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import Ind, Ix, Var, ix, nonneg
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.causal import constant_value, index_of

MOST_COMPARISONS = 4
ABSORBING = -1e30
"""A finite number that leaves nothing of a score to which it is added; float16 has none, but -Inf."""
FROM_MEMORY = ("load", "loop")
PRODUCT = "row"
"""The expression of the product of a query and a key (scores.py)."""
TRIALS, DIGITS = (1.0, 2.0, -3.0, 0.25), 12
"""Products that tell whether a score is a multiple of it, and the digits of their factors."""


@dataclass(frozen=True)
class Band:
    """The keys that query m sees: from m - left to m + right, of those that there are. None: no bound on that side."""

    left: Ix | None
    right: Ix | None


def band_of(mask: Tensor, queries: Ix, keys: Ix) -> Band | None:
    """The band of a mask [..., queries, keys], of truth values or 0 and what hides a key; None for any other mask."""
    e = _element(mask, queries, keys)
    if e is None or any(one.op in FROM_MEMORY or one.op == PRODUCT for one in walk([e])):
        return None
    finite: list[bool] = []

    def seen(known: Mapping[int, bool]) -> bool | None:
        value = constant_value(e, known)
        if value is None or isinstance(value, bool):
            return value
        finite.append(value not in (0, -math.inf))
        return True if value == 0 else False if value <= ABSORBING else None

    band = _banded(e, seen, queries, keys)
    return band if band is None or not any(finite) or _sees_itself(band, queries, keys) else None


def scaled_band(scores: Tensor, queries: Ix, keys: Ix) -> tuple[Band, float] | None:
    """(the band, the factor) of scores that are the factor times the product for keys of a band that holds each query's
    own place, and hide all others; None for other scores.
    """
    e = _element(scores, queries, keys)
    products = [] if e is None else [one for one in walk([e]) if one.op == PRODUCT]
    if e is None or len(products) != 1 or any(one.op in FROM_MEMORY for one in walk([e])):
        return None
    factors: set[float] = set()

    def seen(known: Mapping[int, bool]) -> bool | None:
        values = [constant_value(e, {**known, products[0].id: trial}) for trial in TRIALS]
        numbers = [value for value in values if value is not None and not math.isnan(value)]
        if len(numbers) < len(values):
            return None
        if len(set(numbers)) == 1:
            return False if numbers[0] <= ABSORBING else None
        factors.update(round(value / trial, DIGITS) for value, trial in zip(numbers, TRIALS, strict=True))
        return True

    band = _banded(e, seen, queries, keys)
    factor = factors.pop() if len(factors) == 1 else 0.0
    return (band, factor) if band is not None and factor > 0 and _sees_itself(band, queries, keys) else None


def _element(value: Tensor, queries: Ix, keys: Ix) -> E | None:
    """The element of query m and key n."""
    lead = [ix(Var(f"i{k}", s)) for k, s in enumerate(value.shape[:-2])]
    return value.at([*lead, ix(Var("m", queries)), ix(Var("n", keys))]) if value.rank > 1 else None


def _banded(e: E, seen: Callable[[Mapping[int, bool]], bool | None], queries: Ix, keys: Ix) -> Band | None:
    """The band of what is seen by the values of the comparisons in an expression."""
    compared = _comparisons(e)
    shown = _shown(compared, seen)
    bounds = None if shown is None else _bounds(compared, shown)
    return None if bounds is None else _band(bounds, queries, keys)


def seen_pairs(left: int | None, right: int | None, queries: int, keys: int) -> int:
    """How many pairs of a query and a key that it sees there are, by numbers."""
    first = (0 if left is None else max(m - left, 0) for m in range(queries))
    last = (keys if right is None else min(m + right + 1, keys) for m in range(queries))
    return sum(max(end - start, 0) for start, end in zip(first, last, strict=True))


def _comparisons(e: E) -> list[E]:
    """The comparisons of positions in an expression."""
    return [one for one in walk([e]) if one.op == "bin" and _differences(one)]


def _shown(compared: Sequence[E], seen: Callable[[Mapping[int, bool]], bool | None]) -> list[tuple[bool, ...]] | None:
    """The values of the comparisons with which a key is seen."""
    if len(compared) > MOST_COMPARISONS:
        return None
    shown = []
    for values in itertools.product((False, True), repeat=len(compared)):
        found = seen({one.id: held for one, held in zip(compared, values, strict=True)})
        if found is None:
            return None
        shown += [values] if found else []
    return shown


def _bounds(compared: Sequence[E], shown: Sequence[tuple[bool, ...]]) -> list[Ix] | None:
    """What must be at least 0 for a key to be seen, where that is all."""
    needed = [{values[k] for values in shown} for k in range(len(compared))]
    if len(shown) != 2 ** sum(len(one) == 2 for one in needed):
        return None  # not each of some comparisons, whatever the others are
    bounds: list[Ix] = []
    for one, values in zip(compared, needed, strict=True):
        if len(values) == 2:
            continue
        differences = _differences(one)
        if not values.pop():
            if len(differences) > 1:
                return None
            differences = [-d - 1 for d in differences]
        bounds += differences
    return bounds


def _differences(e: E) -> list[Ix]:
    """What is at least 0 exactly if a comparison of positions holds; none for another comparison."""
    a, b, token = e.args[0], e.args[1], e.attr
    if token in (">", ">="):
        a, b, token = b, a, token.replace(">", "<")
    if token not in ("<", "<="):
        return []
    inner = a.args[0] if a.op == "fn" and a.attr == "absolute" and a.ctype in ("int", "long") else a
    first, second = index_of(inner), index_of(b)
    if first is None or second is None:
        return []
    less = int(token == "<")
    return [second - first - less] if inner is a else [second - first - less, second + first - less]


def _band(bounds: Sequence[Ix], queries: Ix, keys: Ix) -> Band | None:
    """The band that all bounds leave; None where one bounds something else, or it is open which of two is closer."""
    distance = ix(Var("m", queries)) - ix(Var("n", keys))
    sides: dict[bool, Ix] = {}  # by whether it is to the right
    for bound in bounds:
        if nonneg(bound):
            continue
        right = _is_size(bound - distance)
        rest = bound - distance * (1 if right else -1)
        if not _is_size(rest):
            return None
        closer = rest if right not in sides else _least(sides[right], rest)
        if closer is None:
            return None
        sides[right] = closer
    left, right_side = sides.get(False), sides.get(True)
    left = None if left is None or nonneg(left - queries + 1) else left
    return Band(left, None if right_side is None or nonneg(right_side - keys + 1) else right_side)


def _is_size(p: Ix) -> bool:
    """Whether an index holds no position and nothing that is read from memory."""
    return not any(isinstance(atom, (Var, Ind)) for atom in p.atoms())


def _least(a: Ix, b: Ix) -> Ix | None:
    """The lesser of two sizes, None where that is not known."""
    return a if nonneg(b - a) else b if nonneg(a - b) else None


def _sees_itself(band: Band, queries: Ix, keys: Ix) -> bool:
    """Whether every query sees the key at its own place, so that none sees no key."""
    return queries == keys and all(side is None or nonneg(side) for side in (band.left, band.right))


__all__ = ["Band", "band_of", "scaled_band", "seen_pairs"]
