"""Short rows of state that move within themselves, as the windows of a causal convolution that take one step.

Each element of such a state takes the value of another of its row, which other threads would overwrite: the new value
would be computed into memory of its own, and copied. Where a thread computes all of a row, it reads the row before it
writes it, and what else is computed from the new row (the convolution) reads registers: one kernel for three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hipwright.engine.fuse.groups import FULL, Group, GroupMember
from hipwright.engine.fuse.overwriting import read_elsewhere
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.ir.shapes import flatten, reindex
from hipwright.engine.lower.short_rows import WIDEST, combined
from hipwright.engine.lower.values import LoweredItem


def fuse_state_rows(s: Scheduler, may: Callable[[str], bool]) -> None:
    """Makes one kernel of a state's new rows, the copy into the state and their readers. may(tensor): the choice."""
    if not s.fuse:
        return
    for writer in [i for i in s.c.items if i.target and i.kind == "pw"]:
        for old in (True, False):
            found = _StateRows.of(s, writer, old=old)
            members = found.members() if found is not None else None
            if found is not None and members is not None:
                if may(found.writer.target):
                    found.apply(members)
                break


@dataclass
class _StateRows:
    """writer: copies the new rows into the state; groups: all whose items become one kernel, which are `items`."""

    s: Scheduler
    writer: LoweredItem
    new: LoweredItem
    groups: list[Group]
    items: list[LoweredItem]

    @classmethod
    def of(cls, s: Scheduler, writer: LoweredItem, *, old: bool) -> _StateRows | None:
        """The state that an item overwrites; None where it does anything else, or the kernels cannot be one. old: with
        the kernels that read the old state.
        """
        new = _copied(s, writer)
        if new is None:
            return None
        read = {new.name, writer.target} if old else {new.name}
        readers = [i for i in s.c.items if i is not writer and read & s.reads.get(i.name, set())]
        homes = [s.home.get(i.name) for i in (new, writer, *readers)]
        groups = list({id(g): g for g in homes if g is not None}.values())
        if None in homes or any(g.kind != "fused" or g.column_sums for g in groups):
            return None
        mine = {i.name for g in groups for i in g.items}
        items = [i for i in s.c.items if i.name in mine]
        rows = product(new.space[:-1])
        for item in items:
            wide = _width(item, new.space[:-1]) is not None
            if item.alone or item.place or (item.target and item is not writer):
                return None
            if not (_written_out(item) and wide if item.kind == "red" else wide or product(item.space) == rows):
                return None
            if item.kind not in ("pw", "red"):
                return None
        outside = {name for i in items for name in s.reads[i.name]} - mine
        if any(s.depends(name, g) for name in outside for g in groups):
            return None
        if any(read_elsewhere(s, g, mine, writer.target) for g in groups):
            return None
        return cls(s, writer, new, groups, items)

    def members(self) -> list[GroupMember] | None:
        """The members over the rows, one for each element of a row; None where a thread would need another's row."""
        c, self.space = self.s.c, list(self.new.space[:-1])
        self.variables = [c.arena.var("v", size) for size in self.space]
        rows = [ix(v) for v in self.variables]
        known: dict[tuple[str, str], E] = {}
        out: list[GroupMember] = []
        for item in self.items:
            for number, (element, position) in enumerate(self._elements(item, rows)):
                value = self._resolved(element, known)
                if value is None:
                    return None
                known[item.name, position.key] = value
                named = replace(item, name=f"{item.name}/{number}") if number else item
                out.append(GroupMember(named, FULL, value, position))
        return out if self._own_rows(out, rows) else None

    def _elements(self, item: LoweredItem, rows: Sequence[Ix]) -> list[tuple[E, Ix]]:
        """The elements that a row's thread computes of an item, and where they are stored."""
        width = _width(item, self.space)
        if width is None:
            index = reindex(self.space, item.space, list(rows))
            return [(item.body(index), flatten(item.space, index))]
        places = [[*rows, ix(place)] for place in range(width)]
        values = [item.body(index) for index in places]
        if item.kind == "red":
            total = combined(self.s.c.arena, item.reduction, values)
            return [(total, flatten(item.shape, reindex(self.space, item.shape, list(rows))))]
        return [(value, flatten(item.space, index)) for value, index in zip(values, places, strict=True)]

    def _resolved(self, value: E, known: dict[tuple[str, str], E]) -> E | None:
        """A value whose loads of the kernel's own values are those; None where one is of another row."""
        names, failed = {i.name for i in self.items}, False

        def on_load(e: E) -> E | None:
            nonlocal failed
            found = known.get((e.attr[0], e.attr[1].key))
            failed = failed or (found is None and e.attr[0] in names)
            return found

        (resolved,) = self.s.c.arena.rewrite([value], lambda atom: None, on_load)
        return None if failed else resolved

    def _own_rows(self, members: Sequence[GroupMember], rows: Sequence[Ix]) -> bool:
        """Whether of the state a thread reads its own row alone, and under no condition."""
        target, width = self.writer.target, self.writer.space[-1]
        first = flatten(self.space, rows) * width
        for e in walk([m.value for m in members]):
            if e.op in ("guard", "loop") and any(a.op == "load" and a.attr[0] == target for a in walk([e])):
                return False
            if e.op == "load" and e.attr[0] == target:
                place = (e.attr[1] - first).value
                if place is None or not 0 <= place < (width.value or 0):
                    return False
        return True

    def apply(self, members: list[GroupMember]) -> None:
        """Makes the groups one."""
        group, *others = self.groups
        for other in others:
            self.s.remove(other)
        group.space, group.dims, group.variables, group.columns = self.space, (), self.variables, {}
        group.items, group.members, group.short_rows = list(self.items), members, True
        self.s.home |= {i.name: group for i in self.items}


def _copied(s: Scheduler, writer: LoweredItem) -> LoweredItem | None:
    """The stored rows from which an item copies short rows into a state, or None."""
    width = _width(writer, writer.space[:-1])
    if writer.place or width is None or width > WIDEST or writer.body(s.c.probe(writer.space)).op != "load":
        return None
    new = next((i for i in s.c.items if i.name in s.reads[writer.name]), None)
    if new is None or new.kind != "pw" or new.target or _width(new, writer.space[:-1]) is None:
        return None
    return new


def _width(item: LoweredItem, rows: Sequence[Ix]) -> int | None:
    """The elements of an item in each of some rows, if it has a few; a window and the element behind it are one more
    than the window."""
    width = item.space[-1].value if item.space else None
    if width is None or not 1 < width <= WIDEST + 1 or [s.key for s in item.space[:-1]] != [s.key for s in rows]:
        return None
    return width


def _written_out(item: LoweredItem) -> bool:
    """Whether a reduction over short rows is an expression of their elements."""
    floats = item.dtype in ("float32", "float64") and item.reduction in ("sum", "max", "min")
    return floats and item.dims == (len(item.space) - 1,)
