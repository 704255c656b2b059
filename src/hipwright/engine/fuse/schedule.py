"""Fusion: items are assigned to groups, each of which becomes one kernel.

A group has an iteration space: `space` with the reduced dimensions `dims`. Its members are reductions over that space,
elementwise values on all of it, and values with one element per row. A member may read another member only at the
position that the same thread computes, so that nothing crosses threads but the reductions themselves. The exception is
a *part*: values of another width per row (a chunk, a slice), which compute what they read of the row once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hipwright.engine.fuse.directions import crosses, way
from hipwright.engine.fuse.groups import PART, Group
from hipwright.engine.fuse.overwriting import written_behind
from hipwright.engine.fuse.placing import kept_dims, place
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ONE, ix, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import LoweredItem

WHOLE = ("float64", "float32", "float16", "bfloat16", "int64", "int32")
"""The dtypes of scans whose stored values differ from the compute type by one rounding only."""


APART_ROW = 1 << 25
"""Elements of a row of which next to nothing stays on the device between the reduction and its readers, so that blocks
that wait for one another save no read. A round figure, not measured.
"""
STARVED_COLUMNS, LONG_COLUMN = 8448, 1024
"""Columns, one to a thread, that are too few for a device's 264 blocks of 32 side by side; the rows from which they are
read again after the reductions instead of kept in registers. The statistics are then a kernel whose blocks share
columns, and the readers another: a batch norm in training mode of 16384 x 4096 bfloat16 took an H200 2.7 ms in one
kernel, and torch.compile's three kernels 0.16.
"""
CACHED_COLUMN, CACHED_TOTAL = 4096, 1 << 23
"""Rows of a column up to which one kernel with narrow blocks finds them in the cache again (layout/columns.py), in a
tensor of more elements than the cache holds anyway."""
ODD_RUN, ODD_TOTAL = 256, 1 << 20
"""Elements of a run of a strided row, where they are an odd number, and of all rows, from which what follows the
reductions is apart: no vector divides the rows, and each element's place is a division. Batch norms in training mode
of 64 x 32 x 65 x 65 float32 took an H200 107 us in one kernel, of 64 x 16 x 33 x 33 34; statistics of 64 x 16 x 65 x 65
and a kernel along planes took less than 28, torch.compile's two kernels of the first 38.
"""
MOST_NUMBERS = 64
"""Single numbers that one kernel computes."""


class Scheduler:
    """Greedy fusion in program order: a group takes an item when spaces agree and no cycle arises."""

    def __init__(
        self,
        context: LoweringContext,
        external: dict[str, set[str]],
        fuse: bool = True,
        part: Callable[[str], bool] = lambda name: True,
        over: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.c = context
        self.fuse = fuse
        self.part = part  # may this item recompute the row's values? asked only where it can
        self.over = over  # may the kernel that reads a tensor by rows overwrite it?
        self.groups: list[Group] = []
        self.home: dict[str, Group] = {}
        self.reads: dict[str, set[str]] = {}
        self.external = external  # library call or view -> the names it reads
        # rewrites a reduction that a product's kernel begins (row_tiles.py); returns the items to add before it
        self.begin_rows: Callable[[LoweredItem], Sequence[LoweredItem]] = lambda item: ()

    def add(self, item: LoweredItem) -> Group:
        """Places one item, whose producers are placed already."""
        self.reads[item.name] = self.item_reads(item)
        if item.kind in ("red", "pw") and self.fuse:
            for before in self.begin_rows(item):
                self.c.items.append(before)
                self.add(before)
        if item.kind == "red" and self.fuse:
            self._row_value(item)
        if item.kind == "call" and self._joined(item):
            return self.home[item.name]
        for group in self._candidates(item):
            if self.fuse and self._try(group, item):
                self.home[item.name] = group
                self._absorb(group, item)
                return group
        group = Group(len(self.groups), list(item.space), item.dims if item.kind != "pw" else ())
        group.kind = item.kind if item.kind in ("scan", "call") else "fused"
        members = place(self.c, group, [item])
        if members is None:
            raise RuntimeError(f"{item.name} reads itself")
        group.items, group.members = [item], members
        self.groups.append(group)
        self.home[item.name] = group
        return group

    def _row_value(self, item: LoweredItem) -> None:
        """Rewrites a reduction over values that a kernel has one of for each row, as the mean of the rows' losses.

        The rows' kernel computes it: the reduction is often one block, which would read and divide for all rows.
        """
        homes = {g.number: g for name in self.reads[item.name] if (g := self.home.get(name)) is not None}
        group = next(iter(homes.values()), None)
        if group is None or len(homes) > 1 or group.kind != "fused" or not group.dims or len(self.reads[item.name]) < 2:
            return
        exact = item.dtype in ("float32", "float64") and not item.reduction.startswith("arg")
        if not exact or product(item.space) != product(group.outer):
            return
        made = LoweredItem(self.c.unique(f"{item.name}_row"), "pw", item.dtype, item.space, item.body, node=item.node)
        self.reads[made.name] = self.reads[item.name]
        if self._try(group, made):
            self.home[made.name] = group
            item.body = self.c.keep(made, between=False).at
            self.reads[item.name] = {made.name}

    def _absorb(self, group: Group, item: LoweredItem) -> None:
        """Merges the pointwise groups that a new member reads into its group: their values stay in registers.

        They were placed when nothing tied them to it, as a product of two inputs that the row's last pass reads.
        """
        homes = [self.home[name] for name in sorted(self.reads[item.name]) if name in self.home]
        for other in dict.fromkeys(homes):
            if other is not group:
                self._merges(group, other)

    def _merges(self, group: Group, other: Group) -> bool:
        """Merges a pointwise group into another group over the same space, if it can be there."""
        if group.kind != "fused" or other.kind != "fused" or other.dims or other.items[0].alone:
            return False
        if not other.space or product(other.space) != product(group.space) or not self._merged(group, other):
            return False
        self.remove(other)
        return True

    def merges(self, group: Group, other: Group) -> bool:
        """The same where both read a tensor, so that it is read once."""
        mine, theirs = ({name for i in g.items for name in self.reads[i.name]} for g in (group, other))
        return not group.items[0].alone and bool(mine & theirs) and self._merges(group, other)

    def remove(self, group: Group) -> None:
        """Removes a group whose items have moved to another one."""
        self.groups.remove(group)
        for number, left in enumerate(self.groups):
            left.number = number

    def placed(self, group: Group) -> Group | None:
        """The group with the present bodies of its items; None if they no longer fit it."""
        shaped = Group(group.number, group.space, group.dims, group.items)
        members = place(self.c, shaped, group.items)
        shaped.members = members or []
        return shaped if members is not None else None

    def adopt(self, part: LoweredItem, group: Group, *, of: LoweredItem) -> None:
        """Adds an item of per-row values to a group; another item is its sum."""
        self.reads[part.name], self.home[part.name] = self.reads[of.name], group
        self.reads[of.name] = {part.name}

    def depends(self, name: str, group: Group) -> bool:
        """Whether a value is computed by a group or by a reader of it."""
        return self._depends(name, group, set())

    def reread(self, item: LoweredItem) -> None:
        """Records the new body of an item."""
        self.reads[item.name] = self.item_reads(item)

    def join(self, group: Group, item: LoweredItem) -> bool:
        """Puts an item into a group, if it can be there."""
        self.reads[item.name] = self.item_reads(item)
        if not self._try(group, item):
            del self.reads[item.name]
            return False
        self.home[item.name] = group
        return True

    def _merged(self, group: Group, other: Group) -> bool:
        """Puts the items of a pointwise group before those of a group, if no path outside both connects them."""
        items = [*other.items, *group.items]
        outside = {name for i in items for name in self.reads[i.name] if self.home.get(name) not in (group, other)}
        if any(i.target for i in items) or any(self._depends(n, g, set()) for n in outside for g in (group, other)):
            return False
        shaped = Group(group.number, group.space, group.dims)
        members = place(self.c, shaped, items)
        if members is None or any(m.role == PART for m in members):
            return False
        group.variables, group.columns, group.items, group.members = shaped.variables, shaped.columns, items, members
        self.home |= {i.name: group for i in other.items}
        return True

    def _joined(self, item: LoweredItem) -> bool:
        """Puts all outputs of one call into one group."""
        group = next((self.home[i.name] for i in item.placed.items if i and i.name in self.home), None)
        if group is None:
            return False
        group.items.append(item)
        self.home[item.name] = group
        return True

    def item_reads(self, item: LoweredItem) -> set[str]:
        """The buffers that an item reads."""
        if item.kind == "call":
            return set(item.placed.reads)
        index = [ix(self.c.arena.var("p", s)) for s in item.space]
        values = [item.body(index), *([self.c.arena.index(item.place(index))] if item.place else [])]
        return {e.attr[0] for e in walk(values) if e.op == "load"}

    def _candidates(self, item: LoweredItem) -> list[Group]:
        if item.kind in ("scan", "call") or item.alone:
            return []
        found: list[Group] = []
        producers = {self.home[r].number for r in self.reads[item.name] if r in self.home}
        found += [self.groups[n] for n in sorted(producers, reverse=True)]
        behind = [g for g in found if g.kind in ("call", "scan") and self._follows(g, item)]
        for group in reversed(self.groups):
            if group not in found and self._shares(group, item):
                found.append(group)
        return behind + [g for g in found if g.kind == "fused" and not g.items[0].alone]

    def _follows(self, group: Group, item: LoweredItem) -> bool:
        """Whether a pointwise item can be the epilogue of a call or a scan."""
        first = group.items[0]
        # a narrow integer wraps when it is stored, so that its readers must see what was
        alone = first.dtype not in WHOLE if first.kind == "scan" else first.placed.offer.whole
        return item.kind == "pw" and not alone and product(item.space) == product(group.space)

    def _shares(self, group: Group, item: LoweredItem) -> bool:
        """Whether both read the same input over the same space, or are single numbers (the steps that layers count)."""
        if all(i.kind == "pw" and product(i.space) == ONE for i in (item, *group.items)):
            return len(group.items) < MOST_NUMBERS
        if product(group.space) != product(item.space) and product(group.outer) != product(item.space):
            return False
        mine = self.reads[item.name]
        beside = item.kind == "red" and bool(group.dims)  # two reductions of equal extent are one launch
        return beside or any(mine & self.reads[other.name] for other in group.items)

    # ------------------------------------------------------------ joining

    def _is_apart(self, group: Group, item: LoweredItem) -> bool:
        """Whether an item reads a huge row, few long columns, or odd runs, once more, behind the reductions."""
        if item.kind != "pw" or not group.dims:
            return False
        huge = self.c.numel_hint(group.inner) >= APART_ROW
        if not (huge or self._has_few_columns(group) or self._has_odd_runs(group)):
            return False
        reduced = {i.name for i in group.items if i.kind == "red"}
        return product(item.space) == product(group.space) and bool(self.reads[item.name] & reduced)

    def _has_few_columns(self, group: Group) -> bool:
        """Whether the reductions go down few long columns, which lie side by side in memory."""
        length, columns = self.c.numel_hint(group.inner), self.c.numel_hint(group.outer)
        if (
            length <= LONG_COLUMN
            or columns >= STARVED_COLUMNS
            or (length <= CACHED_COLUMN and length * columns > CACHED_TOTAL)
        ):
            return False
        reductions = [m for m in group.members if m.role == "red"]
        return bool(reductions) and all(way(group, m) == "across" for m in reductions)

    def _has_odd_runs(self, group: Group) -> bool:
        """Whether rows consist of several runs of an odd length."""
        inner = len(group.space)
        while inner - 1 in group.dims:
            inner -= 1
        run = self.c.numel_hint(group.space[inner:])
        strided = any(d < inner for d in group.dims) and run % 2 == 1 and run >= ODD_RUN
        return strided and self.c.numel_hint(group.space) >= ODD_TOTAL

    def _try(self, group: Group, item: LoweredItem) -> bool:
        if self._is_apart(group, item):
            return False
        shaped = self._reshaped(group, item)
        if shaped is None or self._cycle(group, item):
            return False
        hazard = self._hazard(group, item)
        if hazard and not shaped.dims:
            return False
        members = place(self.c, shaped, [*group.items, item])
        if members is None or crosses(self.c, shaped, members):
            return False
        if hazard and not (written_behind(self, group, members) and (not item.target or self.over(item.target))):
            return False
        if members[-1].role == PART and not self.part(item.name):
            return False
        group.space, group.dims, group.variables = shaped.space, shaped.dims, shaped.variables
        group.columns = shaped.columns
        group.items.append(item)
        group.members = members
        return True

    def _reshaped(self, group: Group, item: LoweredItem) -> Group | None:
        """The space of the group with the item in it; None where the spaces differ."""
        if item.kind == "red":
            if group.dims:
                same_outer = product(group.outer) == product(item.shape)
                same_inner = product(group.inner) == product([item.space[d] for d in item.dims])
                return Group(group.number, group.space, group.dims) if same_outer and same_inner else None
            whole = product(item.space)
            if any(product(member.space) != whole for member in group.items):
                return None
            return Group(group.number, list(item.space), item.dims)
        if product(item.space) in (product(group.space), product(group.outer)):
            return Group(group.number, group.space, group.dims)
        reads = any(self.home.get(r) is group for r in self.reads[item.name])
        if reads and kept_dims(self.c, group, item) and not any(i.target for i in (*group.items, item)):
            return Group(group.number, group.space, group.dims)
        return None

    def _cycle(self, group: Group, item: LoweredItem) -> bool:
        """Whether the group would depend on itself, through an item outside it, once it holds the item."""
        outside = [name for name in self.reads[item.name] if self.home.get(name) is not group]
        return any(self._depends(name, group, set()) for name in outside)

    def _depends(self, name: str, group: Group, seen: set[str]) -> bool:
        """Whether a value is computed by a group or a reader of it; not by recursion: a network is as deep as it is."""
        left = [name]
        while left:
            name = left.pop()
            if name in seen:
                continue
            seen.add(name)
            home = self.home.get(name)
            if home is group:
                return True
            left += self.external.get(name, ()) if home is None else {r for i in home.items for r in self.reads[i.name]}
        return False

    def _hazard(self, group: Group, item: LoweredItem) -> bool:
        """Whether the item overwrites a module buffer that the group reads, or the reverse."""
        written = {i.target for i in (*group.items, item) if i.target}
        if not written:
            return False
        readers = [i for i in (*group.items, item) if self.reads[i.name] & written]
        return any(i.target not in self.reads[i.name] for i in readers)
