"""Fused column reductions: a row kernel accumulates sums over its rows while it reads them.

The gradient of a norm thus reads its inputs once. A block of such a kernel takes many rows. Its threads keep the sums
of their own columns in registers and store them at the end, one row of partials for each block; the sum of all rows
becomes the sum of these partials. Partials are added in one order, so results do not vary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hipwright.engine.fuse.groups import FULL, ROW, Group
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix, ix, product
from hipwright.engine.lower.values import LoweredItem

UNITS, THREADS = 132, 1024
"""Multiprocessors of an H200, and the threads on each at 64 registers a thread: all blocks run at once."""
EACH = 8
"""Neighbouring columns of a thread, whose sums stay in its registers beside its part of a row."""
NARROW, WIDE, MOST_SUMS = 512, 1024 * EACH, 2
LEAST_ROWS = 8
"""Rows of a block, at least: with fewer, the partials would be much of what it reads."""


def fuse_column_reductions(s: Scheduler, may: Callable[[str], bool]) -> None:
    """Move column sums into the row kernel that reads the same tensors. may: whether an item may be moved."""
    if not s.fuse:
        return
    for columns in [g for g in s.groups if _sums(g)]:
        for rows in [g for g in s.groups if g.kind == "fused" and g.dims and not g.column_sums and g is not columns]:
            if _fit(s, rows, columns) and may(columns.items[0].name) and _fuse(s, rows, columns):
                break


def blocks(width: int) -> int:
    """The number of blocks of a kernel that sums `width` columns: as many as run at once."""
    threads = max(64, 1 << max(-(-width // EACH) - 1, 0).bit_length())
    return UNITS * THREADS // threads


def _sums(group: Group) -> bool:
    """Whether a group holds float sums over leading dimensions, and values computed from each, alone."""
    reds = [m.item for m in group.members if m.role == "red"]
    leading = all(i.dims == tuple(range(len(i.dims))) and len(i.dims) < len(i.space) for i in reds)
    sums = all(i.reduction == "sum" and i.dtype == "float32" for i in reds)
    alone = all(m.role in ("red", ROW) and not m.item.target for m in group.members)
    return group.kind == "fused" and 0 < len(reds) <= MOST_SUMS and leading and sums and alone


def _fit(s: Scheduler, rows: Group, columns: Group) -> bool:
    """Whether rows fit a block, are many, and their kernel reads what is summed."""
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
    """Tensors that the sums read element by element."""
    members = [m for m in group.members if m.role == "red"]
    out: set[str] = set()
    for e in walk([m.value for m in members]):
        if e.op == "load":
            sizes = [a.size for a in e.attr[1].atoms() if getattr(a, "size", None) is not None]
            out |= {e.attr[0]} if s.c.numel_hint(sizes) > max(width, s.c.hint(product(group.inner))) else set()
    return out


def _fuse(s: Scheduler, rows: Group, columns: Group) -> bool:
    """Give the row kernel the elements of each sum, and the sums the blocks' partials; False if nothing was changed."""
    reds = [i for i in columns.items if i.kind == "red"]
    made = [LoweredItem(s.c.unique(f"{i.name}_by_block"), "pw", "float32", i.space, i.body, node=i.node) for i in reds]
    wider = Group(rows.number, rows.space, rows.dims, [*rows.items, *made])
    placed = s.placed(wider)
    if placed is None or any(m.role != FULL for m in placed.members[-len(made) :]):
        return False
    count = ix(blocks(s.c.hint(product(rows.inner))))
    before = [(i, i.space, i.dims, i.body) for i in reds]
    for item, part in zip(reds, made, strict=True):
        _read_partials(s, item, part, [count, *item.shape])
    rest = s.placed(Group(columns.number, list(reds[0].space), reds[0].dims, columns.items))
    if rest is None:
        for item, space, dims, body in before:
            item.space, item.dims, item.body = space, dims, body
        return False
    rows.items, rows.column_sums = wider.items, {m.name: count for m in made}
    rows.members, rows.variables, rows.columns = placed.members, placed.variables, placed.columns
    columns.space, columns.dims = rest.space, rest.dims
    columns.members, columns.variables, columns.columns = rest.members, rest.variables, rest.columns
    for item, part in zip(reds, made, strict=True):
        s.adopt(part, rows, of=item)
    return True


def _read_partials(s: Scheduler, item: LoweredItem, part: LoweredItem, space: Sequence[Ix]) -> None:
    """Make an item the sum of the blocks' partials."""
    kept = s.c.keep(LoweredItem(part.name, "pw", "float32", list(space), part.body), between=False)
    item.space, item.dims, item.body = list(space), (0,), kept.at
