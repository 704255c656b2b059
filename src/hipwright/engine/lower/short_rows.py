"""Reductions over few elements: written out, as an expression of the elements, so that no kernel is a row's.

The coordinates of a point are three, the corners of a box four. Sums over them as rows of their own leave every lane
but three idle, and store what the next operator reads at once: the distances of all pairs of points. Where something
costly is summed in each of a few columns (a force by its coordinates), each column is a row, of one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

from hipwright.engine.ir.expr import E, ExprArena, weight
from hipwright.engine.ir.index import Ix, ix
from hipwright.engine.lower.values import Index, Tensor

FEW = 4
"""Elements of a row up to which it is written out: neighbouring threads then read 16 bytes apart. 0: none is."""
WIDEST = 8
"""Elements of a row of state up to which one thread computes all of it (engine/fuse/state_rows.py)."""
LARGE = 1 << 16
"""Rows from which it is worth while. A round figure, not measured."""
MOST = 64
"""The weight (engine/ir/expr.py) of what is written out."""
SHARED = 8
"""The weight from which what is reduced in each of a few columns is worth computing once for them all."""
_FUNCTIONS = {"max": "nan_max", "min": "nan_min"}


def few(size: int) -> bool:
    """Whether a row of so many elements is written out."""
    return 1 < size <= FEW


def written_out(
    arena: ExprArena, kind: str, value: Tensor, dims: Sequence[int], element: E
) -> Callable[[Index], E] | None:
    """The element of a reduction over dims, which stay with size 1, of a value of floats; None where a row is to be
    reduced. element: of the value, at any place.
    """
    sizes = [value.shape[d].value for d in dims]
    known = [size for size in sizes if size is not None]
    count = prod(known)
    if len(known) < len(sizes) or not few(count) or kind not in ("sum", *_FUNCTIONS):
        return None
    if value.dtype not in ("float32", "float64") or count * weight([element]) > MOST:
        return None
    places = list(product(*(range(size) for size in known)))

    def at(index: Index) -> E:
        return combined(arena, kind, [value.at(_placed(index, dims, place)) for place in places])

    return at


def combined(arena: ExprArena, kind: str, elements: Sequence[E]) -> E:
    """The sum, maximum or minimum of some elements."""
    total, *others = elements
    for one in others:
        plain = kind == "sum"
        total = arena.binary("+", total, one) if plain else arena.call(_FUNCTIONS[kind], total, one)
    return total


def _placed(index: Index, dims: Sequence[int], place: Sequence[int]) -> list[Ix]:
    """The index of an element of the row."""
    where = dict(zip(dims, place, strict=True))
    return [ix(where[k]) if k in where else i for k, i in enumerate(index)]
