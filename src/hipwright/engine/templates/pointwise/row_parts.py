"""Rows of several tensors, concatenated along another dimension: a row is read from one tensor, by vectors.

Which tensor that is, a condition on the row's number says. So the kernel branches on it once a row, and no load of an
element is conditional (channels of two images side by side).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from hipwright.engine.fuse.groups import GroupMember
from hipwright.engine.ir.expr import E, ExprArena, walk
from hipwright.engine.templates.base import depends

MOST_PARTS = 4
"""Parts up to which a kernel has the code of each."""


@dataclass(frozen=True)
class RowParts:
    """What is stored of a row: that of one side where the condition holds, else of the other. No condition: members."""

    members: list[GroupMember]
    condition: E | None = None
    sides: tuple[RowParts, ...] = ()

    def leaves(self) -> Iterator[list[GroupMember]]:
        """The members of each part."""
        if not self.sides:
            yield self.members
        for side in self.sides:
            yield from side.leaves()


def row_parts(arena: ExprArena, members: Sequence[GroupMember], inner: Collection[str]) -> RowParts:
    """The parts of rows; a single one where there are none, or too many. inner: what changes along a row."""
    found = _parts(arena, list(members), set(inner))
    return found if len(list(found.leaves())) <= MOST_PARTS else RowParts(list(members))


def _parts(arena: ExprArena, members: list[GroupMember], inner: set[str]) -> RowParts:
    values = [m.value for m in members]
    condition = _condition(values, inner)
    if condition is None:
        return RowParts(members)
    sides = []
    for holds in (True, False):
        known = {condition.id: arena.const(holds, "bool")}
        side = arena.rewrite(values, lambda atom: None, lambda load: None, known=known)
        placed = [changed(m, value=value) for m, value in zip(members, side, strict=True)]
        sides.append(_parts(arena, placed, inner))
    return RowParts(members, condition, tuple(sides))


def _condition(values: Sequence[E], inner: set[str]) -> E | None:
    """The outermost condition on whole rows by which elements are read at one place or at another."""
    memo: dict[int, bool] = {}
    for e in reversed(list(walk(values))):
        if e.op != "guard" or e.attr is not None or depends(e.args[0], inner, memo):
            continue
        if not _reads(e.args[0]) and all(map(_reads, e.args[1:])):
            return e.args[0]
    return None


def _reads(value: E) -> bool:
    return any(e.op in ("load", "row") for e in walk([value]))
