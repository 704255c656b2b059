"""Masks that a graph builds from positions alone and that are bands: a query sees the keys from some before its place
to some after it.

A mask is a function of comparisons of positions. It is a band where it lets a key be seen exactly if some of them hold
and some do not, and each of these bounds the distance of the key from the query on one side.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import Ind, Ix, Var, ix, nonneg
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.attention.causal import constant_value, index_of

MOST_COMPARISONS = 4
ABSORBING = -1e30
"""A finite number that leaves nothing of a score to which it is added; float16 has none, but -Inf."""
FROM_MEMORY = ("load", "loop", "row")


@dataclass(frozen=True)
class Band:
    """The keys that query m sees: from m - left to m + right, of those that there are. None: no bound on that side."""

    left: Ix | None
    right: Ix | None


def band_of(mask: Tensor, queries: Ix, keys: Ix) -> Band | None:
    """The band of a mask [..., queries, keys], of truth values or 0 and what hides a key; None for any other mask."""
    lead = [ix(Var(f"i{k}", s)) for k, s in enumerate(mask.shape[:-2])]
    query, key = ix(Var("m", queries)), ix(Var("n", keys))
    if mask.rank < 2:
        return None
    e = mask.at([*lead, query, key])
    if any(one.op in FROM_MEMORY for one in walk([e])):
        return None
    compared = _comparisons(e)
    values = _shown(e, compared)
    if values is None:
        return None
    shown, finite = values
    bounds = _bounds(compared, shown)
    band = None if bounds is None else _band(bounds, query, key, (queries, keys))
    return band if band is None or not finite or _sees_itself(band, queries, keys) else None


def seen_pairs(left: int | None, right: int | None, queries: int, keys: int) -> int:
    """How many pairs of a query and a key that it sees there are, by numbers."""
    first = (0 if left is None else max(m - left, 0) for m in range(queries))
    last = (keys if right is None else min(m + right + 1, keys) for m in range(queries))
    return sum(max(end - start, 0) for start, end in zip(first, last, strict=True))


def _comparisons(e: E) -> list[E]:
    """The comparisons of positions in an expression."""
    return [one for one in walk([e]) if one.op == "bin" and _differences(one)]


def _shown(e: E, compared: Sequence[E]) -> tuple[list[tuple[bool, ...]], bool] | None:
    """(the values of the comparisons with which a key is seen, whether a finite number hides the others)."""
    if len(compared) > MOST_COMPARISONS:
        return None
    shown, finite = [], False
    for values in itertools.product((False, True), repeat=len(compared)):
        value = constant_value(e, {one.id: held for one, held in zip(compared, values, strict=True)})
        if value is None:
            return None
        seen = value if isinstance(value, bool) else True if value == 0 else False if value <= ABSORBING else None
        if seen is None:
            return None
        finite = finite or (not seen and not isinstance(value, bool) and value != float("-inf"))
        shown += [values] if seen else []
    return shown, finite


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


def _band(bounds: Sequence[Ix], query: Ix, key: Ix, sizes: tuple[Ix, Ix]) -> Band | None:
    """The band that all bounds leave; None where one bounds something else, or it is open which of two is closer."""
    sides: dict[bool, Ix] = {}  # by whether it is to the right
    for bound in bounds:
        if nonneg(bound):
            continue
        right = _is_size(bound - (query - key))
        rest = bound - (query - key) * (1 if right else -1)
        if not _is_size(rest):
            return None
        closer = rest if right not in sides else _least(sides[right], rest)
        if closer is None:
            return None
        sides[right] = closer
    queries, keys = sizes
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


__all__ = ["Band", "band_of", "seen_pairs"]
