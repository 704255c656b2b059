"""Kernels whose readers compute all that they store, so that they are not launched: unpacked codes, sines of angles.

Value by value (recompute.py) such a kernel may stay, because each value read from another of its values saves nothing.
Computed anew together they cost what the kernel reads, and save what it writes and its readers load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from hipwright.engine.fuse.costs import ITEM_BYTES, MORE, PER_BYTE, Divided, cheap, operations, sizes_of, with_bodies
from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.placing import MAX_PART
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Fn
from hipwright.engine.lower.values import LoweredItem


def whole_kernels(s: Scheduler, fixed: Collection[str], targets: Collection[str], may: Callable[..., bool]) -> None:
    """Rewrites the readers of kernels that need not store, and removes those. fixed: values that must be in memory;
    targets: buffers that are overwritten; may(name): the choice for a value.
    """
    for group in list(s.groups):
        kernel = _Kernel.of(s, group, fixed, targets)
        if kernel is None or not kernel.pays():
            continue
        chosen = [may(item.name) for item in kernel.stored]  # each is a choice, whatever the others are
        if all(chosen) and kernel.apply():
            for item in group.items:
                del s.home[item.name]
            s.remove(group)


@dataclass
class _Kernel:
    """A pointwise kernel of several values. stored: those that others read; readers: the items elsewhere that do."""

    s: Scheduler
    group: Group
    stored: Sequence[LoweredItem]
    readers: Sequence[LoweredItem]

    @classmethod
    def of(cls, s: Scheduler, group: Group, fixed: Collection[str], targets: Collection[str]) -> _Kernel | None:
        """The kernel of a group, if all that it stores may be recomputed elsewhere."""
        names = {item.name for item in group.items}
        if group.kind != "fused" or len(names) < 2 or names & set(fixed):
            return None
        if any(i.kind != "pw" or i.target or i.alone or s.reads[i.name] & set(targets) for i in group.items):
            return None
        readers = [i for g in s.groups if g is not group for i in g.items if s.reads[i.name] & names]
        if not readers or any(s.home[reader.name].kind != "fused" for reader in readers):
            return None
        read = set[str]().union(*(s.reads[reader.name] for reader in readers))
        return cls(s, group, [item for item in group.items if item.name in read], readers)

    def pays(self) -> bool:
        """Whether less is moved, and the operations that are repeated take less time than the bytes saved."""
        elements = [self._whole(item.body(self.s.c.probe(item.space))) for item in self.stored]
        nodes = list(walk(elements))
        if any(e.op in ("loop", "row") for e in nodes):
            return False
        if not all(cheap(a) for e in nodes for p in indices(e) for a in p.atoms()):
            return False
        groups = self._groups()
        saved = sum(self._kept(item, groups) for item in self.stored) - sum(self._fresh(g, nodes) for g in groups)
        try:
            return saved > 0 and self._light(saved)
        except Divided:
            return False

    def _kept(self, item: LoweredItem, groups: Sequence[Group]) -> int:
        """Bytes of an item's store and of the loads of it."""
        loads = sum(any(item.name in self.s.reads[i.name] for i in g.items) for g in groups)
        return self.s.c.numel_hint(item.space) * ITEM_BYTES.get(item.dtype, 1) * (1 + loads)

    def _fresh(self, group: Group, nodes: Sequence[E]) -> int:
        """Bytes that the values are made of and a reader's kernel does not read already."""
        known = {i.name for i in group.items}.union(*(self.s.reads[i.name] for i in group.items))
        loads = {e.attr[0]: e for e in nodes if e.op == "load" and e.attr[0] not in known}
        return sum(self._reach(e) for e in loads.values())

    def _reach(self, load: E) -> int:
        _, position, dtype = load.attr
        sizes = [size for a in {a for mono in position.terms for a in mono} for size in sizes_of(a)]
        return self.s.c.numel_hint(sizes) * ITEM_BYTES.get(dtype, 1)

    def _light(self, saved: int) -> bool:
        allowed = max(MORE, PER_BYTE * saved // max(sum(self.s.c.numel_hint(r.space) for r in self.readers), 1))
        for reader in self.readers:
            before = reader.body(self.s.c.probe(reader.space))
            if operations(self._whole(before)) > min(operations(before) + allowed, MAX_PART):
                return False
        return True

    def _groups(self) -> list[Group]:
        return list({id(g): g for r in self.readers for g in [self.s.home[r.name]]}.values())

    def _whole(self, value: E) -> E:
        """An element in which nothing is read of the kernel: what it would have stored is computed."""
        items = {item.name: item for item in self.group.items}

        def on_load(e: E) -> E | None:
            item = items.get(e.attr[0])
            if item is None:
                return None
            at = self.s.c.index_of(item, e.attr[1])
            read = {a.key for a in e.attr[1].atoms()}
            if any(isinstance(a, Fn) and a.key not in read for i in at for a in i.atoms()):
                raise Divided
            return item.body(at)

        while any(e.op == "load" and e.attr[0] in items for e in walk([value])):
            (value,) = self.s.c.arena.rewrite([value], lambda atom: None, on_load)
        return value

    def apply(self) -> bool:
        """Gives the readers their new bodies and places them anew; False, with nothing changed, if one does not fit."""
        return with_bodies(self.s, self.readers, self._groups(), self._whole)
