"""Whether a kernel by rows may overwrite a tensor whose elements it reads: a state that each step decays and updates.

A thread reads an element of the tensor, in some pass over its row, before it writes that element in the same or a later
pass; no other thread reads it in the pass that writes. Passes are kept apart by the reductions between them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from hipwright.engine.fuse.groups import FULL, Group, GroupMember
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import LoweredItem


class Placed(Protocol):
    """What is known of all items while they are scheduled (schedule.py)."""

    c: LoweringContext
    external: dict[str, set[str]]
    home: dict[str, Group]
    reads: dict[str, set[str]]

    def item_reads(self, item: LoweredItem) -> set[str]:
        """The buffers that an item reads."""

    def depends(self, name: str, group: Group) -> bool:
        """Whether a value is computed by a group or by a reader of it."""


def written_behind(s: Placed, group: Group, members: Sequence[GroupMember]) -> bool:
    """Whether all tensors that members of a group overwrite may be overwritten by it, though others of it read them."""
    return all(_behind(s, group, members, writer) for writer in members if writer.item.target)


def _behind(s: Placed, group: Group, members: Sequence[GroupMember], writer: GroupMember) -> bool:
    target = writer.item.target
    readers = [m for m in members if _reads([m.value], target)]
    if all(m is writer for m in readers):
        return True
    if writer.role != FULL or read_elsewhere(s, group, {m.item.name for m in members}, target):
        return False
    before, found = _reductions(members, writer), _passes(members)
    plain = all(m.item.reduction not in ("max", "min") for m in members)  # those may share a pass with what reads them
    for member in readers:
        if any(e.attr[1].key != writer.position.key for e in _loads([member.value], target)):
            return False
        if any(e.op in ("guard", "loop") and _reads([e], target) for e in walk([member.value])):
            return False  # such a load is repeated where it is used, maybe behind the store
        early = member.item.name in before or (plain and found[member.item.name] <= found[writer.item.name])
        if member is not writer and not early:
            return False
    return True


def read_elsewhere(s: Placed, group: Group, mine: Collection[str], target: str) -> bool:
    """Whether something but the items `mine` reads a tensor and may come after a group that overwrites it."""
    if any(target in read for read in s.external.values()):
        return True
    for item in s.c.items:
        if item.name in mine or target not in (s.reads.get(item.name) or s.item_reads(item)):
            continue
        if item.name not in s.home or s.depends(item.name, group):
            return True
    return False


def _reductions(members: Sequence[GroupMember], writer: GroupMember) -> set[str]:
    """The reductions whose results a member's value is made of, directly or by other reductions."""
    values = {m.item.name: m.value for m in members}
    found, left = set[str](), [writer.value]
    while left:
        new = {str(e.attr) for e in walk([left.pop()]) if e.op == "row"} - found
        found |= new
        left += [values[name] for name in sorted(new) if name in values]
    return found


def _passes(members: Sequence[GroupMember]) -> dict[str, int]:
    """The pass over the row after which each member's value is known."""
    found: dict[str, int] = {}
    for member in members:
        needs = [found[e.attr] for e in walk([member.value]) if e.op == "row"]
        found[member.item.name] = max(needs, default=-1) + 1
    return found


def _loads(values: Collection[E], buffer: str) -> list[E]:
    return [e for e in walk(list(values)) if e.op == "load" and e.attr[0] == buffer]


def _reads(values: Collection[E], buffer: str) -> bool:
    return bool(_loads(values, buffer))
