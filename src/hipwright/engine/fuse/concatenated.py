"""Rows concatenated from equal parts, as a rotary embedding's halves: a thread computes the same columns of every part.

What the parts read they often share (`x1 * cos - x2 * sin` beside `x1 * sin + x2 * cos`), so it is read once, and no
condition on the column is left that would keep accesses from being packs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from hipwright.engine.fuse.groups import FULL, Group, GroupMember
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import ZERO, Atom, Ix, Var, divide, ix, modulo, replace
from hipwright.engine.lower.context import LoweringContext

COUNTS = (2, 3, 4)


def equal_parts(group: Group) -> int | None:
    """The number of equal parts that the last dimension is concatenated from, by the conditions on its index."""
    if len(group.space) < 2 or group.dims or any(m.role != FULL for m in group.members):
        return None
    return parts_of_column([m.value for m in group.members], group.variables[-1], group.space[-1])


def parts_of_column(values: Sequence[E], variable: Var, size: Ix) -> int | None:
    """The number of equal parts that a dimension is concatenated from in some values. size: of the dimension."""
    ends = column_ends(values, variable)
    for count in COUNTS:
        if ends and modulo(size, ix(count)) == ZERO:
            part = divide(size, ix(count))
            if all(any(end == part * k for k in range(1, count)) for end in ends):
                return count
    return None


def column_ends(values: Sequence[E], variable: Var) -> list[Ix]:
    """The columns at which parts of some values end, by the conditions `column < end` in them."""
    column = ix(variable)
    return [end for e in walk(values) if (end := _end(e, column)) is not None]


def _end(e: E, column: Ix) -> Ix | None:
    """The first column for which the condition `column < end` fails."""
    if e.op != "bin" or e.attr != "<" or e.args[0].op != "index" or e.args[0].attr != column:
        return None
    end = e.args[1]
    return ix(int(end.attr)) if end.op == "const" else end.attr if end.op == "index" else None


@dataclass
class ConcatenatedParts:
    """The members of all parts, over the columns of one part."""

    old: list[GroupMember]
    members: list[GroupMember]
    column: Var
    width: Ix

    def apply(self, group: Group, stores: dict[str, tuple[str, str]]) -> None:
        """Replace the group's members. stores: where members are stored; gains the new ones, in the same buffers."""
        for old, new in zip(self.old * (len(self.members) // len(self.old)), self.members, strict=True):
            stores[new.item.name] = stores[old.item.name]
        group.members, group.space[-1], group.variables[-1] = self.members, self.width, self.column


def parts_of(c: LoweringContext, group: Group) -> ConcatenatedParts | None:
    """The parts of a group; None where a condition on the column is left in them."""
    count = equal_parts(group)
    if count is None:
        return None
    part = divide(group.space[-1], ix(count))
    column = c.arena.var("v", part)
    members: list[GroupMember] = []
    for number in range(count):
        members += _part(c, group, {group.variables[-1]: ix(column) + part * number}, number)
    if any(e.op in ("guard", "sel") and varies(e.args[0], column) for e in walk([m.value for m in members])):
        return None
    return ConcatenatedParts(list(group.members), members, column, part)


def _part(c: LoweringContext, group: Group, table: Mapping[Atom, Ix], number: int) -> list[GroupMember]:
    """The members of one part; those of the first keep their items, others have renamed copies."""
    values = c.arena.rewrite([m.value for m in group.members], table.get, lambda e: None)
    out = []
    for member, value in zip(group.members, values, strict=True):
        item = changed(member.item, name=f"{member.item.name}/{number}") if number else member.item
        out.append(GroupMember(item, member.role, value, replace(member.position, table.get)))
    return out


def varies(condition: E, column: Var) -> bool:
    """Whether the condition depends on the column."""
    return any(e.op == "index" and column in e.attr.atoms() for e in walk([condition]))
