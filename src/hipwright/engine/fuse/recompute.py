"""Intermediates that their readers recompute instead of loading, where that moves less memory.

A value of each element costs its store and a load for every kernel that reads it. Computed again it costs the loads of
what it is made of, which its reader often has anyway: the row that a stencil reads beside its padded form, the
normalised input that two gradients need. (Chen et al. 2016, "Training deep nets with sublinear memory cost", is the
source of the idea; the rule is our own.) A large value that lies in the order of the rows that are reduced, computed
from one that does not (a channels-last image), is stored, or all rows would be read across memory: the norms behind a
tanh of 16 x 64 x 128 x 256 took an H200 336 us with their convolution so, and 706 without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hipwright.engine.fuse.costs import ITEM_BYTES, MORE, PER_BYTE, Divided, cheap, operations, sizes_of, with_bodies
from hipwright.engine.fuse.directions import CACHED, step
from hipwright.engine.fuse.groups import Group
from hipwright.engine.fuse.placing import MAX_PART
from hipwright.engine.fuse.schedule import Scheduler
from hipwright.engine.fuse.whole_kernels import whole_kernels
from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Fn, Ind, Ix, Var, ix, product
from hipwright.engine.lower.values import LoweredItem


def recompute(s: Scheduler, wanted: Collection[str], may: Callable[..., bool]) -> None:
    """Rewrites the readers and removes items that are no longer read. wanted: what is returned; may(name, usual): the
    choice, and its default.

    Only pointwise items that kernels alone read, of plain loads and gathers: no loops, no buffer that is overwritten.
    """
    if not s.fuse:
        return
    fixed = set(wanted).union(*s.external.values())
    targets = {i.target for g in s.groups for i in g.items if i.target}
    whole_kernels(s, fixed, targets, may)
    for item in [i for g in s.groups for i in g.items if i.kind == "pw" and not i.target and i.name not in fixed]:
        readers = [i for g in s.groups for i in g.items if item.name in s.reads[i.name]]
        away = [r for r in readers if s.home[r.name] is not s.home[item.name]]
        if not away or item.alone or s.reads[item.name] & targets:
            continue
        if any(s.home[i.name].kind != "fused" for i in (item, *away)):  # an epilogue, or read by a template
            continue
        again = _Again(s, item, away)
        home = s.home[item.name]
        if again.pays() and may(item.name, again.keeps_order()) and again.apply() and len(away) == len(readers):
            _drop(s, item)
            _join(s, home, away)


def _join(s: Scheduler, group: Group, readers: list[LoweredItem]) -> None:
    """Makes one kernel of what is left of a group and of its former readers, where both read the same tensors."""
    for reader in readers:
        other = s.home[reader.name]
        if group.items and other is not group and s.merges(other, group):
            return


def _drop(s: Scheduler, item: LoweredItem) -> None:
    """Removes an item that is no longer read."""
    group = s.home.pop(item.name)
    group.items.remove(item)
    group.members = [m for m in group.members if m.item is not item]
    if not group.items:
        s.remove(group)


def _rows(value: E) -> set[str]:
    """The indices that are values, of all that an element reads."""
    return {a.key for e in walk([value]) for p in indices(e) for a in p.atoms() if isinstance(a, Ind)}


def _lies_across(position: Ix, inner: Var) -> bool:
    """Whether neighbours in memory differ in another variable than this one, by which the position varies too."""
    others = [a for a in position.atoms() if isinstance(a, Var) and a != inner]
    varies = inner in position.atoms() and step(position, inner) != ix(1)
    return varies and any(step(position, a) == ix(1) for a in others)


def _gathers(load: E) -> bool:
    return any(isinstance(a, Ind) for a in load.attr[1].atoms())


@dataclass
class _Again:
    """One item, and its readers in other kernels."""

    s: Scheduler
    item: LoweredItem
    away: list[LoweredItem]

    def pays(self) -> bool:
        """Whether traffic shrinks, arithmetic grows little, and every load is at a sum of variables and sizes, or of
        their quotients by numbers. What is gathered may be gathered by one other kernel instead.
        """
        element = self.item.body(self.s.c.probe(self.item.space))
        nodes = list(walk([element]))
        atoms = {a for e in nodes for p in indices(e) for a in p.atoms()}
        groups = self._groups()
        if any(e.op in ("loop", "row") for e in nodes):
            return False
        if self._is_of_rows() and any(e.op == "fn" for e in nodes):
            return False
        if not all(cheap(a) or (isinstance(a, Ind) and len(groups) == 1) for a in atoms):
            return False
        kept = self.s.c.numel_hint(self.item.space) * ITEM_BYTES.get(self.item.dtype, 1) * (1 + len(groups))
        saved = kept - sum(self._fresh(g, nodes) for g in groups)
        return saved > 0 and self._light(saved)

    def _is_of_rows(self) -> bool:
        """Whether a kernel has it once a row, beside the row's reductions: its readers have many elements for each."""
        home = self.s.home[self.item.name]
        return bool(home.dims) and product(self.item.space) == product(home.outer)

    def keeps_order(self) -> bool:
        """Whether reductions that read a large value along memory read along it what the value is made of, too."""
        if self.s.c.numel_hint(self.item.space) <= CACHED:
            return True
        return not any(self._crosses(reader) for reader in self.away if reader.kind == "red")

    def _crosses(self, reader: LoweredItem) -> bool:
        """Whether a reduction goes along the value, and across what the value is made of."""
        index = self.s.c.probe(reader.space)
        inner = next((a for a in index[reader.dims[-1]].atoms() if isinstance(a, Var)), None)
        before = reader.body(index)
        own = [e.attr[1] for e in walk([before]) if e.op == "load" and e.attr[0] == self.item.name]
        if inner is None or not all(step(position, inner) == ix(1) for position in own):
            return False
        read = {e.id for e in walk([before])}
        fresh = [e.attr[1] for e in walk([self._inlined(before)]) if e.op == "load" and e.id not in read]
        return any(_lies_across(position, inner) for position in fresh)

    def _groups(self) -> list[Group]:
        return list({id(g): g for r in self.away for g in [self.s.home[r.name]]}.values())

    def _fresh(self, group: Group, nodes: list[E]) -> int:
        """Bytes that the item reads and this kernel does not read already. What is gathered is for each row that a
        reader gathers it from: neighbours of a gathered element lie elsewhere.
        """
        known = {i.name for i in group.items}.union(*(self.s.reads[i.name] for i in group.items))
        loads = [e for e in nodes if e.op == "load" and e.attr[0] not in known]
        places = max(self._places(reader) for reader in self.away if self.s.home[reader.name] is group)
        return sum({e.attr[0]: self._reach(e) * (places if _gathers(e) else 1) for e in loads}.values())

    def _places(self, reader: LoweredItem) -> int:
        """From how many rows a reader gathers what the item gathers from one; columns of a row lie together."""
        before = reader.body(self.s.c.probe(reader.space))
        own = _rows(self.item.body(self.s.c.probe(self.item.space)))
        try:
            return max(len(_rows(self._inlined(before)) - _rows(before)) // max(len(own), 1), 1)
        except Divided:
            return 1

    def _reach(self, load: E) -> int:
        """Bytes of a load: an element for each combination of the variables that it depends on; of a gather, an
        element for each of the item.
        """
        _, position, dtype = load.attr
        if _gathers(load):
            return self.s.c.numel_hint(self.item.space) * ITEM_BYTES.get(dtype, 1)
        sizes = [size for a in {a for mono in position.terms for a in mono} for size in sizes_of(a)]
        return self.s.c.numel_hint(sizes) * ITEM_BYTES.get(dtype, 1)

    def _light(self, saved: int) -> bool:
        """Whether the operations that are repeated take less time than the bytes that are saved. Where readers use each
        element once, as the product of two halves does, none are repeated.
        """
        numels = [self.s.c.numel_hint(reader.space) for reader in self.away]
        own = operations(self.item.body(self.s.c.probe(self.item.space)))
        once = own * self.s.c.numel_hint(self.item.space)
        for reader in self.away:
            before = reader.body(self.s.c.probe(reader.space))
            try:
                after = self._inlined(before)
            except Divided:
                return False
            allowed = max(MORE, PER_BYTE * saved // max(sum(numels), 1))
            if len(self.away) == 1:
                allowed = max(allowed, once // max(numels[0], 1))
            if operations(after) > min(operations(before) + allowed, MAX_PART):
                return False
        return True

    def _inlined(self, value: E) -> E:
        """A reader's element in which the item's element replaces the loads of the item."""

        def on_load(e: E) -> E | None:
            if e.attr[0] != self.item.name:
                return None
            at = self.s.c.index_of(self.item, e.attr[1])
            read = {a.key for a in e.attr[1].atoms()}  # a wrapped border is no division of ours
            if any(isinstance(a, Fn) and a.key not in read for i in at for a in i.atoms()):
                raise Divided
            return self.item.body(at)

        (value,) = self.s.c.arena.rewrite([value], lambda atom: None, on_load)
        return value

    def apply(self) -> bool:
        """Gives the readers their new bodies and places them anew; False, with nothing changed, if one does not fit."""
        return with_bodies(self.s, self.away, self._groups(), self._inlined)
