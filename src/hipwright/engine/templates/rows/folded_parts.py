"""Rows of which all that follows their reductions goes by equal parts: the reductions go by parts too.

The rotation of a head's halves behind its norm reads element `c` and element `c + half` together. Where the reductions
take the same two elements of each thread, the row stays in registers as for any norm, and what the rotation reads
beside it is loaded before the reductions are known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from hipwright.engine.fuse.groups import FULL, PART, ROW, Group, as_position, positions
from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import Atom, Ix, divide, ix
from hipwright.engine.lower.context import LoweringContext

MOST_PARTS = 4
"""Parts of a row of which a thread has an element of each."""
SHORT_ROW = 1024
"""Elements of a row up to which a thread has few of each part."""
TERMS: dict[str | None, Callable[[LoweringContext, E, E], E]] = {
    "sum": lambda c, a, b: c.arena.binary("+", a, b),
    "max": lambda c, a, b: c.arena.call("nan_max", a, b),
    "min": lambda c, a, b: c.arena.call("nan_min", a, b),
}
"""How one term of a reduction is made of those of two parts."""


def fold_parts(c: LoweringContext, group: Group, choose: Callable[..., bool]) -> None:
    """Makes rows as long as their parts (in place), if chosen. choose: (options, default) -> the choice."""
    parts = _parts(group)
    if not parts or not choose((True, False), True):
        return
    row, (column,), width = group.variables[-1], group.columns.values(), divide(group.space[-1], ix(parts))
    inside = c.arena.var("v", width)

    def at(values: list[E], old: Atom, new: Ix) -> list[E]:
        return c.arena.rewrite(values, lambda atom: new if atom == old else None, lambda load: None)

    for member in group.members:
        if member.role == "red":
            terms = [at([member.value], row, ix(inside) + width * part)[0] for part in range(parts)]
            member.value = reduce(lambda a, b: TERMS[member.item.reduction](c, a, b), terms)
        elif member.role == PART:
            member.value, place = at([member.value, *positions(c.arena, [member])], column, ix(inside))
            member.role, member.position = FULL, as_position(place)
    group.space[-1], group.variables[-1], group.columns, group.folded = width, inside, {}, parts


def _parts(group: Group) -> int:
    """The parts of a row; 0 where it has none, or where a thread would have to take their elements apart."""
    last = len(group.space) - 1
    if group.kind != "fused" or group.dims != (last,) or len(group.columns) != 1 or group.column_sums or group.run:
        return 0
    (column,), length = group.columns.values(), group.space[last]
    ratio = divide(length, column.size).value if column.size is not None else None
    if length.value is None or column.size is None or not ratio or not 1 < ratio <= MOST_PARTS:
        return 0
    roles = {m.role for m in group.members}
    known = all(m.item.reduction in TERMS for m in group.members if m.role == "red")
    if length.value > SHORT_ROW or column.size * ratio != length or not known or not roles <= {"red", ROW, PART}:
        return 0
    return ratio if {"red", PART} <= roles else 0
