"""A group of items, one kernel to be: its space, its members there, and the merging of dimensions walked as one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Ix, Var, ix, replace
from hipwright.engine.lower.core import LoweredItem, LoweringContext

FULL, ROW, PART = "full", "row", "part"


@dataclass(eq=False)
class GroupMember:
    """An item placed in a group: its expression there, where it lies, and its natural position."""

    item: LoweredItem
    role: str  # "red", "call", FULL, ROW or PART
    value: E
    position: Ix


@dataclass(eq=False)
class Group:
    """One kernel to be."""

    number: int
    space: list[Ix]
    dims: tuple[int, ...]
    items: list[LoweredItem] = field(default_factory=list)
    members: list[GroupMember] = field(default_factory=list)
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


def collapse(c: LoweringContext, group: Group) -> None:
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


def _merge(c: LoweringContext, group: Group, first: int, second: int) -> bool:
    a, b = group.variables[first], group.variables[second]
    values = [m.value for m in group.members]
    for p in _all_indices(values, [m.position for m in group.members]):
        if not _walks_as_one(p, a, b, group.space[second]):
            return False
    size = group.space[first] * group.space[second]
    merged = c.arena.var("v", size)
    table: dict[Atom, Ix] = {a: ix(0), b: ix(merged)}
    new = c.arena.rewrite(values, lambda atom: table.get(atom), lambda e: None)
    for member, value in zip(group.members, new, strict=True):
        member.value = value
        member.position = replace(member.position, lambda atom: table.get(atom))
    group.space[second], group.variables[second] = size, merged
    return True


def _all_indices(values: Sequence[E], extra: Sequence[Ix]) -> Iterable[Ix]:
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
