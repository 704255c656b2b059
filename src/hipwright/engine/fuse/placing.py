"""Places items in a group: expressions over the group's variables, members read in registers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from hipwright.engine.fuse.concatenated import parts_of_column
from hipwright.engine.fuse.groups import FULL, PART, ROW, Group, GroupMember
from hipwright.engine.ir.expr import COMPUTE, E, walk, weight
from hipwright.engine.ir.index import ONE, ZERO, Fn, Ix, divide, ix, product
from hipwright.engine.ir.shapes import flatten, reindex, unflatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import ROW_TILE, LoweredItem

MOST_ORDERED = 3
"""Dimensions of rows up to which an item is tried with every order of them."""
MAX_PART = 400
"""The weight of an expression above which recomputing the row's values is not tried."""


def place(c: LoweringContext, group: Group, items: Sequence[LoweredItem]) -> list[GroupMember] | None:
    """Each item's expression over the group's variables; None if a member cannot be read in registers."""
    group.variables = [c.arena.var("v", s) for s in group.space]
    full = [ix(v) for v in group.variables]
    kept = [full[k] for k in range(len(full)) if k not in group.dims]
    reduced = [full[k] for k in group.dims]
    placed: dict[str, GroupMember] = {}
    parts: list[GroupMember] = []
    for item in items:
        member = _member(c, group, item, full, kept, reduced)
        if member is None:
            return None
        value = _resolve(c, member.value, placed, again=member.role == PART)
        if value is None and items[0].kind == "scan":  # it may read the scan from its end
            back = [group.space[k] - 1 - i if k in group.dims else i for k, i in enumerate(full)]
            member = _member(c, group, item, back, kept, reduced) or member
            value = _resolve(c, member.value, placed)
        if value is None and items[0].kind == "call":
            member = _exchanged(c, group, item, full, placed) or member
            value = _resolve(c, member.value, placed)
        if value is None and member.role == FULL and group.dims and items[0].kind == "red":
            found = _reordered(c, group, item, placed)
            if found:
                placed[item.name] = found[0]
                parts += found[1:]
                continue
        if value is None or (member.role == PART and not _worth(value)):
            return None
        placed[item.name] = GroupMember(item, member.role, value, member.position)
    return [*placed.values(), *parts]


def _reordered(
    c: LoweringContext, group: Group, item: LoweredItem, placed: dict[str, GroupMember]
) -> list[GroupMember] | None:
    """The members of an item that reads the rows in another order, or other columns of a row; None if it reads more.

    Rows in another order are one member, which is stored at other positions. A row that is concatenated from equal
    parts (a rotary embedding's halves) is a member for each part; those after the first have names of their own.
    """
    if item.name in placed or not placed.keys() & _buffers(c, item):
        return None
    rows = [k for k in range(len(group.space)) if k not in group.dims]
    real = [k for k in rows if group.space[k] != ONE]
    orders = itertools.permutations(real) if len(real) <= MOST_ORDERED else iter([tuple(real)])
    for order in orders:
        into = dict(zip(real, order, strict=True))
        kept = [into.get(k, k) for k in rows]
        sizes = [group.space[k] for k in kept]
        index = [ix(group.variables[k]) for k in kept]
        member = _ordered(group, item, sizes, index)
        value = _resolve(c, member.value, placed) if order != tuple(real) else None
        if value is not None:
            return [GroupMember(item, FULL, value, member.position)]
        found = _row_parts(c, group, item, sizes, index, placed)
        if found is not None:
            return found
    return None


def _ordered(group: Group, item: LoweredItem, sizes: list[Ix], rows: list[Ix]) -> GroupMember:
    """An item's element where the rows are those of `rows`."""
    inner = [ix(group.variables[k]) for k in group.dims]
    index = reindex([*sizes, *group.inner], item.space, [*rows, *inner])
    index = [i if s != ONE else ix(0) for i, s in zip(index, item.space, strict=True)]
    return GroupMember(item, FULL, item.body(index), item.position(index))


def _row_parts(
    c: LoweringContext,
    group: Group,
    item: LoweredItem,
    sizes: list[Ix],
    rows: list[Ix],
    placed: dict[str, GroupMember],
) -> list[GroupMember] | None:
    """A member for each of the equal parts that an item's last dimension, a whole row, is concatenated from."""
    width = item.space[-1]
    if width != product(group.inner) or product(item.space[:-1]) != product(sizes):
        return None
    lead = reindex(sizes, item.space[:-1], rows)
    lead = [i if s != ONE else ix(0) for i, s in zip(lead, item.space, strict=False)]
    probe = c.arena.var("p", width)
    count = parts_of_column([item.body([*lead, ix(probe)])], probe, width)
    if count is None:
        return None
    part = divide(width, ix(count))
    column = group.columns.setdefault(part.key, c.arena.var("c", part))
    found = []
    for number in range(count):
        index = [*lead, ix(column) + part * number]
        value = _resolve(c, item.body(index), placed, again=True)
        if value is None or not _worth(value):
            return None
        named = replace(item, name=f"{item.name}/{number}") if number else item
        found.append(GroupMember(named, PART, value, item.position(index)))
    return found


def _buffers(c: LoweringContext, item: LoweredItem) -> set[str]:
    """What an item reads."""
    return {e.attr[0] for e in walk([item.body(c.probe(item.space))]) if e.op == "load"}


def _exchanged(
    c: LoweringContext, group: Group, item: LoweredItem, full: list[Ix], placed: dict[str, GroupMember]
) -> GroupMember | None:
    """A member that reads a call's result with two dimensions exchanged, none of them the last one."""
    for a, b in itertools.combinations(range(len(full) - 1), 2):
        order = list(range(len(full)))
        order[a], order[b] = b, a
        index = reindex([group.space[k] for k in order], item.space, [full[k] for k in order])
        index = [i if s != ONE else ix(0) for i, s in zip(index, item.space, strict=True)]
        member = GroupMember(item, FULL, item.body(index), item.position(index))
        if _resolve(c, member.value, placed) is not None:
            return member
    return None


def _member(
    c: LoweringContext, group: Group, item: LoweredItem, full: list[Ix], kept: list[Ix], reduced: list[Ix]
) -> GroupMember | None:
    if item.kind == "call":
        value = c.arena.make("row", (), COMPUTE[item.dtype], item.name)
        return GroupMember(item, "call", value, flatten(item.space, full))
    if item.kind in ("red", "scan"):
        if list(item.space) == group.space and item.dims == group.dims:
            index = full
        else:
            outer = iter(reindex(group.outer, item.shape, kept))
            inner = iter(reindex(group.inner, [item.space[d] for d in item.dims], reduced))
            index = [next(inner) if k in item.dims else next(outer) for k in range(len(item.space))]
        if item.kind == "scan":
            return GroupMember(item, FULL, item.body(index), item.position(index))
        row = [i for k, i in enumerate(index) if k not in item.dims]
        return GroupMember(item, "red", item.body(index), flatten(item.shape, row))
    whole = product(item.space) == product(group.space)
    if not whole and product(item.space) != product(group.outer):
        return _part(c, group, item, kept)
    index = reindex(group.space, item.space, full) if whole else reindex(group.outer, item.space, kept)
    index = [i if s != ONE else ix(0) for i, s in zip(index, item.space, strict=True)]
    if item.kind == "tiles":
        tiles = [ZERO if item.whole else divide(index[d], ix(ROW_TILE)) for d in item.dims]
        kept = [i for k, i in enumerate(index) if k not in item.dims]
        return GroupMember(item, FULL, item.body(index), flatten(item.shape, [*kept, *tiles]))
    return GroupMember(item, FULL if whole else ROW, item.body(index), item.position(index))


def _part(c: LoweringContext, group: Group, item: LoweredItem, kept: list[Ix]) -> GroupMember | None:
    """A member with other columns than the row; parts of equal width share the variable."""
    k = kept_dims(c, group, item)
    if not k:
        return None
    width = product(item.space[k:])
    column = group.columns.setdefault(width.key, c.arena.var("c", width))
    index = reindex(group.outer, item.space[:k], kept) + unflatten(item.space[k:], ix(column))
    return GroupMember(item, PART, item.body(index), item.position(index))


def _worth(value: E) -> bool:
    """Whether a part is computed by the row's kernel: it needs the row's reductions and is not too long."""
    return any(e.op == "row" for e in walk([value])) and weight([value]) <= MAX_PART


def _resolve(c: LoweringContext, value: E, placed: dict[str, GroupMember], *, again: bool = False) -> E | None:
    """Replaces loads of members by their expressions; loads at other positions are recomputed (`again`) or refused."""
    failed = False

    def on_load(e: E) -> E | None:
        nonlocal failed
        buffer, position, dtype = e.attr
        member = placed.get(buffer)
        if member is None:
            return None
        if position == member.position:
            if member.role in ("red", "call") or member.item.kind == "scan":
                return c.arena.make("row", (), e.ctype, buffer)
            return _as_stored(member, dtype)
        elsewhere = _elsewhere(c, member, position, placed) if again else None
        failed = failed or elsewhere is None
        return elsewhere

    (resolved,) = c.arena.rewrite([value], lambda atom: None, on_load)
    return None if failed else resolved


def _elsewhere(c: LoweringContext, member: GroupMember, position: Ix, placed: dict[str, GroupMember]) -> E | None:
    """A member's value at another position of the same row, recomputed from its inputs."""
    if member.role not in (FULL, PART):
        return None
    index = unflatten(member.item.space, position)
    if any(isinstance(atom, Fn) for i in index for atom in i.atoms()):
        return None
    return _resolve(c, member.item.body(index), placed, again=True)


def _as_stored(member: GroupMember, dtype: str) -> E:
    """A member's value as a reader of the stored tensor sees it: rounded to its dtype."""
    return member.value


def kept_dims(c: LoweringContext, group: Group, item: LoweredItem) -> int:
    """The leading dimensions of a pointwise item that are the group's rows, where the rest is a part of a row; else 0.

    A part is no wider than the row, so that recomputing never reads more than storing would.
    """
    if not group.dims:
        return 0
    rows = product(group.outer)
    for k in range(1, len(item.space)):
        if product(item.space[:k]) == rows:
            width, row = product(item.space[k:]), product(group.inner)
            return k if width != row and c.hint(width) <= c.hint(row) else 0
    return 0
