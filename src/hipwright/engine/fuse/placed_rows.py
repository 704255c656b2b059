"""Writes into a tensor's places join the kernel whose rows they store: norms of keys that go into a cache.

Such a write is a kernel of its own (templates/scatter/places.py), which reads what the rows' kernel has stored for it.
As a member of that kernel it stores each row, or equal parts of it, where an index tensor says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.engine.fuse.groups import PART, Group
from hipwright.engine.fuse.overwriting import read_elsewhere
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.ir.index import Ind, Ix, ix
from hipwright.engine.lower.values import Index, LoweredItem, Tensor

PLACES = "places"
"""The offer of a write into places (templates/scatter/places.py)."""


def fuse_placed_rows(s: Scheduler) -> None:
    """Moves each write that stores the rows of one kernel into that kernel, where it can be there and is chosen."""
    if not s.fuse:
        return
    for group in [g for g in s.groups if g.kind == "call" and len(g.items) == 1 and g.items[0].target]:
        (call,) = group.items
        made = _stored(s, call)
        if made is None:
            continue
        rows = _rows(s, made)
        if rows is not None and not read_elsewhere(s, rows, {call.name}, call.target) and _join(s, rows, call, made):
            s.remove(group)
            s.c.items[s.c.items.index(call)] = made


def _stored(s: Scheduler, call: LoweredItem) -> LoweredItem | None:
    """The write as a pointwise item with places; None where it is another call, or several writes."""
    offer = call.placed.offer
    if offer.name != PLACES or len(offer.data) != 1 or not isinstance(offer.data[0].value, Tensor):
        return None
    write: Any = offer.data[0]
    *named, value = call.placed.operands
    tensors = [(tensor, size) for tensor, (_, size) in zip(named, write.named, strict=True)]

    def place(index: Index) -> Ix:
        return Ix(write.at(index, [_named(s, t.at(write.index(index, t)), size) for t, size in tensors]).terms)

    body = s.c.cast(value, call.dtype).at
    return LoweredItem(
        call.name, "pw", call.dtype, list(write.shape), body, node=call.node, target=call.target, place=place
    )


def _named(s: Scheduler, value: Any, size: Ix) -> Ix:
    """An element of an index tensor as an index; a negative one counts from the end."""
    whole = s.c.arena.cast(value, "long")
    if whole.op == "index":
        return ix(whole.attr)
    return ix(Ind(s.c.arena.call("wrap_index", whole, s.c.arena.index(size), ctype="long")))


def _rows(s: Scheduler, made: LoweredItem) -> Group | None:
    """The one kernel by rows whose values an item reads."""
    homes: Sequence[Group] = list({id(g): g for r in s.item_reads(made) if (g := s.home.get(r)) is not None}.values())
    (rows,) = homes if len(homes) == 1 else (None,)
    return rows if rows is not None and rows.kind == "fused" and rows.dims else None


def _join(s: Scheduler, rows: Group, call: LoweredItem, made: LoweredItem) -> bool:
    home, reads = s.home[call.name], s.reads[call.name]
    if s.join(rows, made) and (rows.members[-1].role == PART or s.part(made.name)):
        return True
    if made in rows.items:
        rows.items.remove(made)
        rows.members = [m for m in rows.members if m.item is not made]
    s.home[call.name], s.reads[call.name] = home, reads
    return False
