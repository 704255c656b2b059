"""Items become groups; a group becomes one kernel.

A group has an iteration space: `space` with the reduced dimensions `dims`. Its members are reductions over that space,
elementwise values on all of it, and values with one element per row. A member may read another member only at the
position that the same thread computes, so that nothing crosses threads but the reductions themselves. The exception is
a *part*: values of another width per row (a chunk, a slice), which compute what they read of the row once more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hipwright.engine.expr import COMPUTE, E, walk, weight
from hipwright.engine.index import ONE, Atom, Fn, Ix, Var, ix, product
from hipwright.engine.lower.core import Context, Item
from hipwright.engine.shapes import flatten, reindex, unflatten

FULL, ROW, PART = "full", "row", "part"
WHOLE = ("float64", "float32", "float16", "bfloat16", "int64", "int32")
"""The dtypes of scans that hold, but for a rounding, what their compute type does."""
MAX_PART = 400
"""The weight of an expression above which recomputing the row's values is not tried."""


@dataclass(eq=False)
class Member:
    """An item placed in a group: its expression there, where it lies, and its natural position."""

    item: Item
    role: str  # "red", "call", FULL, ROW or PART
    value: E
    position: Ix


@dataclass(eq=False)
class Group:
    """One kernel to be."""

    number: int
    space: list[Ix]
    dims: tuple[int, ...]
    items: list[Item] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    columns: dict[str, Var] = field(default_factory=dict)  # the column variable of the parts, by their width's key
    kind: str = "fused"  # or "scan" or "call"
    crossed: dict[str, Ix] = field(default_factory=dict)  # items whose columns each block sums, and how many blocks

    @property
    def outer(self) -> list[Ix]:
        """Sizes of the kept dimensions."""
        return [s for k, s in enumerate(self.space) if k not in self.dims]

    @property
    def inner(self) -> list[Ix]:
        """Sizes of the reduced dimensions."""
        return [self.space[k] for k in self.dims]


class Scheduler:
    """Greedy fusion in program order: a group takes an item when spaces agree and no cycle arises."""

    def __init__(
        self,
        context: Context,
        external: dict[str, set[str]],
        fuse: bool = True,
        part: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.c = context
        self.fuse = fuse
        self.part = part  # may this item recompute the row's values? asked only where it can
        self.groups: list[Group] = []
        self.home: dict[str, Group] = {}
        self.reads: dict[str, set[str]] = {}
        self.external = external  # library call or view -> the names it reads

    def add(self, item: Item) -> Group:
        """Place one item; producers have been placed before."""
        self.reads[item.name] = self._item_reads(item)
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
        members = self._place(group, [item])
        if members is None:
            raise RuntimeError(f"{item.name} reads itself")
        group.items, group.members = [item], members
        self.groups.append(group)
        self.home[item.name] = group
        return group

    def _row_value(self, item: Item) -> None:
        """A reduction over what a kernel knows of each row, as the mean of the rows' losses, reads one value a row.

        The rows' kernel computes it: the reduction is often one block, which would read and divide for all rows.
        """
        homes = {g.number: g for name in self.reads[item.name] if (g := self.home.get(name)) is not None}
        group = next(iter(homes.values()), None)
        if group is None or len(homes) > 1 or group.kind != "fused" or not group.dims or len(self.reads[item.name]) < 2:
            return
        exact = item.dtype in ("float32", "float64") and not item.reduction.startswith("arg")
        if not exact or product(item.space) != product(group.outer):
            return
        made = Item(self.c.unique(f"{item.name}_row"), "pw", item.dtype, item.space, item.body, node=item.node)
        self.reads[made.name] = self.reads[item.name]
        if self._try(group, made):
            self.home[made.name] = group
            item.body = self.c.keep(made, between=False).at
            self.reads[item.name] = {made.name}

    def _absorb(self, group: Group, item: Item) -> None:
        """Pointwise groups that a new member reads join its group: their values stay in registers.

        They were placed when nothing tied them to it, as a product of two inputs that the row's last pass reads.
        """
        homes = [self.home[name] for name in sorted(self.reads[item.name]) if name in self.home]
        for other in dict.fromkeys(homes):
            if other is group or group.kind != "fused" or other.kind != "fused" or other.dims:
                continue
            if other.space and product(other.space) == product(group.space) and self._merged(group, other):
                self.remove(other)

    def remove(self, group: Group) -> None:
        """A group whose items are elsewhere now."""
        self.groups.remove(group)
        for number, left in enumerate(self.groups):
            left.number = number

    def placed(self, group: Group) -> Group | None:
        """The group with its items' bodies as they are now, or None if they do not fit it any more."""
        shaped = Group(group.number, group.space, group.dims, group.items)
        members = self._place(shaped, group.items)
        shaped.members = members or []
        return shaped if members is not None else None

    def adopt(self, part: Item, group: Group, *, of: Item) -> None:
        """An item that a group has been given, of which another is the sum now."""
        self.reads[part.name], self.home[part.name] = self.reads[of.name], group
        self.reads[of.name] = {part.name}

    def depends(self, name: str, group: Group) -> bool:
        """Does a value come from a group, or from what reads it?"""
        return self._depends(name, group, set())

    def reread(self, item: Item) -> None:
        """The item's body has changed."""
        self.reads[item.name] = self._item_reads(item)

    def _merged(self, group: Group, other: Group) -> bool:
        """Put a pointwise group's items before a group's own, if no value takes a way between them outside."""
        items = [*other.items, *group.items]
        outside = {name for i in items for name in self.reads[i.name] if self.home.get(name) not in (group, other)}
        if any(i.target for i in items) or any(self._depends(n, g, set()) for n in outside for g in (group, other)):
            return False
        shaped = Group(group.number, group.space, group.dims)
        members = self._place(shaped, items)
        if members is None or any(m.role == PART for m in members):
            return False
        group.variables, group.columns, group.items, group.members = shaped.variables, shaped.columns, items, members
        self.home |= {i.name: group for i in other.items}
        return True

    def _joined(self, item: Item) -> bool:
        """The outputs of one call share its group."""
        group = next((self.home[i.name] for i in item.placed.items if i and i.name in self.home), None)
        if group is None:
            return False
        group.items.append(item)
        self.home[item.name] = group
        return True

    def _item_reads(self, item: Item) -> set[str]:
        if item.kind == "call":
            return set(item.placed.reads)
        index = [ix(self.c.arena.var("p", s)) for s in item.space]
        return {e.attr[0] for e in walk([item.body(index)]) if e.op == "load"}

    def _candidates(self, item: Item) -> list[Group]:
        if item.kind in ("scan", "call"):
            return []
        found: list[Group] = []
        producers = {self.home[r].number for r in self.reads[item.name] if r in self.home}
        found += [self.groups[n] for n in sorted(producers, reverse=True)]
        behind = [g for g in found if g.kind in ("call", "scan") and self._follows(g, item)]
        for group in reversed(self.groups):
            if group not in found and self._shares(group, item):
                found.append(group)
        return behind + [g for g in found if g.kind == "fused"]

    def _follows(self, group: Group, item: Item) -> bool:
        """May a pointwise item stand behind a call or a scan, as its epilogue?"""
        first = group.items[0]
        # a narrow integer wraps when it is stored, so that its readers must see what was
        alone = first.dtype not in WHOLE if first.kind == "scan" else first.placed.offer.whole
        return item.kind == "pw" and not alone and product(item.space) == product(group.space)

    def _shares(self, group: Group, item: Item) -> bool:
        """The same input is read by both over the same space."""
        if product(group.space) != product(item.space) and product(group.outer) != product(item.space):
            return False
        mine = self.reads[item.name]
        beside = item.kind == "red" and bool(group.dims)  # two reductions of equal extent are one launch
        return beside or any(mine & self.reads[other.name] for other in group.items)

    # ------------------------------------------------------------ placing

    def _try(self, group: Group, item: Item) -> bool:
        shaped = self._reshaped(group, item)
        if shaped is None or self._cycle(group, item) or self._hazard(group, item):
            return False
        members = self._place(shaped, [*group.items, item])
        if members is None:
            return False
        if members[-1].role == PART and not self.part(item.name):
            return False
        group.space, group.dims, group.variables = shaped.space, shaped.dims, shaped.variables
        group.columns = shaped.columns
        group.items.append(item)
        group.members = members
        return True

    def _reshaped(self, group: Group, item: Item) -> Group | None:
        """The group's space once it holds the item, or None when they do not agree."""
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
        if reads and self._kept_dims(group, item) and not any(i.target for i in (*group.items, item)):
            return Group(group.number, group.space, group.dims)
        return None

    def _kept_dims(self, group: Group, item: Item) -> int:
        """How many leading dimensions of a pointwise item are the group's rows, when the rest is a part of a row; or 0.

        A part is no wider than the row, so that recomputing never reads more than storing would.
        """
        if not group.dims:
            return 0
        rows = product(group.outer)
        for k in range(1, len(item.space)):
            if product(item.space[:k]) == rows:
                width, row = product(item.space[k:]), product(group.inner)
                return k if width != row and self.c.hint(width) <= self.c.hint(row) else 0
        return 0

    def _cycle(self, group: Group, item: Item) -> bool:
        """Would the item make the group depend on itself through something outside it?"""
        outside = [name for name in self.reads[item.name] if self.home.get(name) is not group]
        return any(self._depends(name, group, set()) for name in outside)

    def _depends(self, name: str, group: Group, seen: set[str]) -> bool:
        if name in seen:
            return False
        seen.add(name)
        if name in self.home:
            if self.home[name] is group:
                return True
            below: Iterable[str] = {r for item in self.home[name].items for r in self.reads[item.name]}
        else:
            below = self.external.get(name, ())
        return any(self._depends(other, group, seen) for other in below)

    def _hazard(self, group: Group, item: Item) -> bool:
        """A module buffer is overwritten by the item (or the group) and read by the other."""
        written = {i.target for i in (*group.items, item) if i.target}
        if not written:
            return False
        readers = [i for i in (*group.items, item) if self.reads[i.name] & written]
        return any(i.target not in self.reads[i.name] for i in readers)

    def _place(self, group: Group, items: Sequence[Item]) -> list[Member] | None:
        """Every item's expression over the group's variables, members read in place; None if one cannot be."""
        group.variables = [self.c.arena.var("v", s) for s in group.space]
        full = [ix(v) for v in group.variables]
        kept = [full[k] for k in range(len(full)) if k not in group.dims]
        reduced = [full[k] for k in group.dims]
        placed: dict[str, Member] = {}
        for item in items:
            member = self._member(group, item, full, kept, reduced)
            if member is None:
                return None
            value = self._resolve(member.value, placed, again=member.role == PART)
            if value is None and items[0].kind == "scan":  # it may read the scan from its end
                back = [group.space[k] - 1 - i if k in group.dims else i for k, i in enumerate(full)]
                member = self._member(group, item, back, kept, reduced) or member
                value = self._resolve(member.value, placed)
            if value is None and items[0].kind == "call":
                member = self._exchanged(group, item, full, placed) or member
                value = self._resolve(member.value, placed)
            if value is None or (member.role == PART and not self._worth(value)):
                return None
            placed[item.name] = Member(item, member.role, value, member.position)
        return list(placed.values())

    def _exchanged(self, group: Group, item: Item, full: list[Ix], placed: dict[str, Member]) -> Member | None:
        """A member behind a call that reads its result with two dimensions exchanged, the last one in its place."""
        for a, b in itertools.combinations(range(len(full) - 1), 2):
            order = list(range(len(full)))
            order[a], order[b] = b, a
            index = reindex([group.space[k] for k in order], item.space, [full[k] for k in order])
            index = [i if s != ONE else ix(0) for i, s in zip(index, item.space, strict=True)]
            member = Member(item, FULL, item.body(index), flatten(item.space, index))
            if self._resolve(member.value, placed) is not None:
                return member
        return None

    def _member(self, group: Group, item: Item, full: list[Ix], kept: list[Ix], reduced: list[Ix]) -> Member | None:
        if item.kind == "call":
            value = self.c.arena.make("row", (), COMPUTE[item.dtype], item.name)
            return Member(item, "call", value, flatten(item.space, full))
        if item.kind in ("red", "scan"):
            if list(item.space) == group.space and item.dims == group.dims:
                index = full
            else:
                outer = iter(reindex(group.outer, item.shape, kept))
                inner = iter(reindex(group.inner, [item.space[d] for d in item.dims], reduced))
                index = [next(inner) if k in item.dims else next(outer) for k in range(len(item.space))]
            if item.kind == "scan":
                return Member(item, FULL, item.body(index), flatten(item.space, index))
            row = [i for k, i in enumerate(index) if k not in item.dims]
            return Member(item, "red", item.body(index), flatten(item.shape, row))
        whole = product(item.space) == product(group.space)
        if not whole and product(item.space) != product(group.outer):
            return self._part(group, item, kept)
        index = reindex(group.space, item.space, full) if whole else reindex(group.outer, item.space, kept)
        index = [i if s != ONE else ix(0) for i, s in zip(index, item.space, strict=True)]
        return Member(item, FULL if whole else ROW, item.body(index), flatten(item.space, index))

    def _part(self, group: Group, item: Item, kept: list[Ix]) -> Member | None:
        """A member with columns of its own; parts of equal width share the variable."""
        k = self._kept_dims(group, item)
        if not k:
            return None
        width = product(item.space[k:])
        column = group.columns.setdefault(width.key, self.c.arena.var("c", width))
        index = reindex(group.outer, item.space[:k], kept) + unflatten(item.space[k:], ix(column))
        return Member(item, PART, item.body(index), flatten(item.space, index))

    def _worth(self, value: E) -> bool:
        """A part belongs to the row's kernel if it needs the row's reductions and is not too long."""
        return any(e.op == "row" for e in walk([value])) and weight([value]) <= MAX_PART

    def _resolve(self, value: E, placed: dict[str, Member], *, again: bool = False) -> E | None:
        """Loads of members become their expressions; a load elsewhere in a member is refused, or computed `again`."""
        failed = False

        def on_load(e: E) -> E | None:
            nonlocal failed
            buffer, position, dtype = e.attr
            member = placed.get(buffer)
            if member is None:
                return None
            if position == member.position:
                if member.role in ("red", "call") or member.item.kind == "scan":
                    return self.c.arena.make("row", (), e.ctype, buffer)
                return self._as_stored(member, dtype)
            elsewhere = self._elsewhere(member, position, placed) if again else None
            failed = failed or elsewhere is None
            return elsewhere

        (resolved,) = self.c.arena.rewrite([value], lambda atom: None, on_load)
        return None if failed else resolved

    def _elsewhere(self, member: Member, position: Ix, placed: dict[str, Member]) -> E | None:
        """A member's value at another position of the same row, from what it is computed from."""
        if member.role not in (FULL, PART):
            return None
        index = unflatten(member.item.space, position)
        if any(isinstance(atom, Fn) for i in index for atom in i.atoms()):
            return None
        return self._resolve(member.item.body(index), placed, again=True)

    def _as_stored(self, member: Member, dtype: str) -> E:
        """A member's value as a reader of the stored tensor would see it (half rounds)."""
        return member.value


def collapse(c: Context, group: Group) -> None:
    """Merge neighbouring dimensions that every access walks as one (rewrites the members in place)."""
    lists = [[k for k in range(len(group.space)) if k not in group.dims], list(group.dims)]
    changed = True
    while changed:
        changed = False
        for members in lists:
            for first, second in itertools.pairwise(members):
                if _merge(c, group, first, second):
                    _drop(group, first)
                    lists = [[k for k in range(len(group.space)) if k not in group.dims], list(group.dims)]
                    changed = True
                    break
            if changed:
                break


def _drop(group: Group, k: int) -> None:
    del group.space[k], group.variables[k]
    group.dims = tuple(d - (d > k) for d in group.dims if d != k)


def _merge(c: Context, group: Group, first: int, second: int) -> bool:
    a, b = group.variables[first], group.variables[second]
    values = [m.value for m in group.members]
    for p in _all_indices(values, [m.position for m in group.members]):
        if not _walks_as_one(p, a, b, group.space[second]):
            return False
    size = group.space[first] * group.space[second]
    merged = c.arena.var("v", size)
    table: dict[Atom, Ix] = {a: ix(0), b: ix(merged)}
    new = c.arena.rewrite(values, lambda atom: table.get(atom), lambda e: None)
    from hipwright.engine.index import replace

    for member, value in zip(group.members, new, strict=True):
        member.value = value
        member.position = replace(member.position, lambda atom: table.get(atom))
    group.space[second], group.variables[second] = size, merged
    return True


def _all_indices(values: Sequence[E], extra: Sequence[Ix]) -> Iterable[Ix]:
    from hipwright.engine.expr import indices

    yield from extra
    for e in walk(values):
        yield from indices(e)


def _walks_as_one(p: Ix, a: Var, b: Var, size: Ix) -> bool:
    """p = size * q * a + q * b + rest, with neither variable in q or rest."""
    left: dict[tuple[Atom, ...], int] = {}
    right: dict[tuple[Atom, ...], int] = {}
    for mono, k in p.terms.items():
        hits = [atom for atom in mono if atom in (a, b)]
        if any(atom not in (a, b) and {a, b} & ix(atom).atoms() for atom in mono) or len(hits) > 1:
            return False
        if hits:
            rest = tuple(atom for atom in mono if atom not in (a, b))
            (left if hits[0] == a else right)[rest] = k
    return Ix(left) == Ix(right) * size
