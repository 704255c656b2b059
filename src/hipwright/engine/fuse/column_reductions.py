"""Sums down the columns that a kernel of the rows adds up on its way: the gradient of a norm reads its inputs once.

A block of such a kernel takes many rows. Its threads keep the sums of their own columns in registers and leave them in
memory at the end, a row for each block; what was the sum of all rows becomes the sum of these few. Parts are added in
one order: the result is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hipwright.engine.fuse.groups import FULL, ROW, Group
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.lower.core import LoweredItem

UNITS, THREADS = 132, 1024
"""Multiprocessors of an H200, and the threads on each that 64 registers a thread leave: all blocks run at once."""
EACH = 8
"""Neighbouring columns of a thread: their sums stay in its registers, beside what it holds of a row."""
NARROW, WIDE, MOST_SUMS = 512, 1024 * EACH, 2
LEAST_ROWS = 8
"""Of a block: of fewer, what it leaves would be much of what it reads."""


def crossed(s: Scheduler, may: Callable[[str], bool]) -> None:
    """Move column sums to the rows' kernel where that reads the same tensors. may: is this one to be?"""
    if not s.fuse:
        return
    for columns in [g for g in s.groups if _sums(g)]:
        for rows in [g for g in s.groups if g.kind == "fused" and g.dims and not g.crossed and g is not columns]:
            if _fit(s, rows, columns) and may(columns.items[0].name) and _join(s, rows, columns):
                break


def blocks(width: int) -> int:
    """Of a kernel that sums so many columns: as many as run at once."""
    threads = max(64, 1 << max(-(-width // EACH) - 1, 0).bit_length())
    return UNITS * THREADS // threads


def _sums(group: Group) -> bool:
    """Nothing but float sums over leading dimensions, and what is computed from each?"""
    reds = [m.item for m in group.members if m.role == "red"]
    leading = all(i.dims == tuple(range(len(i.dims))) and len(i.dims) < len(i.space) for i in reds)
    sums = all(i.reduction == "sum" and i.dtype == "float32" for i in reds)
    alone = all(m.role in ("red", ROW) and not m.item.target for m in group.members)
    return group.kind == "fused" and 0 < len(reds) <= MOST_SUMS and leading and sums and alone


def _fit(s: Scheduler, rows: Group, columns: Group) -> bool:
    """Do the rows fit a block, are they many, and does their kernel read what is summed?"""
    width = product(rows.inner).value
    trailing = rows.dims == tuple(range(len(rows.space) - len(rows.dims), len(rows.space)))
    if width is None or not NARROW <= width <= WIDE or not trailing or any(i.target for i in rows.items):
        return False
    reds = [m.item for m in columns.members if m.role == "red"]
    if any(product(i.space[: len(i.dims)]) != product(rows.outer) or product(i.shape) != ix(width) for i in reds):
        return False
    if s.c.hint(product(rows.outer)) < LEAST_ROWS * blocks(width) or not any(m.role == FULL for m in rows.members):
        return False
    known = {e.attr[0] for m in rows.members for e in walk([m.value]) if e.op == "load"}
    if not _large(s, columns, width) <= known or any(m.item.reduction in ("max", "min") for m in rows.members):
        return False
    reads = [(g, name) for g in (rows, columns) for i in g.items for name in s.reads[i.name]]
    return not any(s.depends(name, other) for g, name in reads for other in (rows, columns) if other is not g)


def _large(s: Scheduler, group: Group, width: int) -> set[str]:
    """Tensors of which the sums read an element each."""
    members = [m for m in group.members if m.role == "red"]
    out: set[str] = set()
    for e in walk([m.value for m in members]):
        if e.op == "load":
            sizes = [a.size for a in e.attr[1].atoms() if getattr(a, "size", None) is not None]
            out |= {e.attr[0]} if s.c.hints_of(sizes) > max(width, s.c.hint(product(group.inner))) else set()
    return out


def _join(s: Scheduler, rows: Group, columns: Group) -> bool:
    """Give the rows the elements of each sum, and the sums the blocks' parts; False, and nothing changed, if not."""
    reds = [i for i in columns.items if i.kind == "red"]
    made = [LoweredItem(s.c.unique(f"{i.name}_by_block"), "pw", "float32", i.space, i.body, node=i.node) for i in reds]
    wider = Group(rows.number, rows.space, rows.dims, [*rows.items, *made])
    placed = s.placed(wider)
    if placed is None or any(m.role != FULL for m in placed.members[-len(made) :]):
        return False
    count = ix(blocks(s.c.hint(product(rows.inner))))
    before = [(i, i.space, i.dims, i.body) for i in reds]
    for item, part in zip(reds, made, strict=True):
        _read_parts(s, item, part, [count, *item.shape])
    rest = s.placed(Group(columns.number, list(reds[0].space), reds[0].dims, columns.items))
    if rest is None:
        for item, space, dims, body in before:
            item.space, item.dims, item.body = space, dims, body
        return False
    rows.items, rows.crossed = wider.items, {m.name: count for m in made}
    rows.members, rows.variables, rows.columns = placed.members, placed.variables, placed.columns
    columns.space, columns.dims = rest.space, rest.dims
    columns.members, columns.variables, columns.columns = rest.members, rest.variables, rest.columns
    for item, part in zip(reds, made, strict=True):
        s.adopt(part, rows, of=item)
    return True


def _read_parts(s: Scheduler, item: LoweredItem, part: LoweredItem, space: Sequence[Ix]) -> None:
    """The sum of what the blocks have left."""
    kept = s.c.keep(LoweredItem(part.name, "pw", "float32", list(space), part.body), between=False)
    item.space, item.dims, item.body = list(space), (0,), kept.at
