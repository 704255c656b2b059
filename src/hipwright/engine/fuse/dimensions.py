"""Dimensions of a group's space are merged where accesses walk them as one, and split where accesses divide them.

Splitting turns `i // 4` and `i % 4` into loop variables. It serves what a pixel shuffle or an interleaving view leaves
behind: an index is divided once for several neighbours, and it shows which accesses run along memory. The innermost
dimension is not split into short rows for what is broadcast, such as the statistics of groups of channels: the others
run along the whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from hipwright.engine.fuse.groups import Group, as_position, positions
from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ix, Var, divide, ix, modulo, replace
from hipwright.engine.lower.context import LoweringContext

SHORT = 16
"""Elements of a row that is shorter than the vectors of a wavefront's neighbours."""
FACTORS = range(2, 65)
"""By which dimensions are split; those of a copy in another order by any number, which shows what it exchanges."""


def merge_dimensions(c: LoweringContext, group: Group) -> None:
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
    values = [*(m.value for m in group.members), *positions(c.arena, group.members)]
    for p in _all_indices(values, []):
        if not _walks_as_one(p, a, b, group.space[second]):
            return False
    size = group.space[first] * group.space[second]
    merged = c.arena.var("v", size)
    table: dict[Atom, Ix] = {a: ix(0), b: ix(merged)}
    new = c.arena.rewrite(values, lambda atom: table.get(atom), lambda e: None)
    for member, value, position in zip(group.members, new, new[len(group.members) :], strict=False):
        member.value, member.position = value, as_position(position)
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


def split_dimensions(c: LoweringContext, group: Group) -> None:
    """Split every dimension of a pointwise group of which accesses use quotient and remainder alone (in place)."""
    last = len(group.space) - 1
    for k in reversed(range(len(group.space))):
        factor = _factor(group, group.variables[k])
        size = group.space[k]
        if factor is None or modulo(size, factor) != ix(0) or _divided_otherwise(group, group.variables[k], factor):
            continue
        if k == last and c.hint(factor) < SHORT and not _functions(group, group.variables[k], whole=True):
            continue
        outer, inner = c.arena.var("v", divide(size, factor)), c.arena.var("v", factor)
        _substitute(c, group, {group.variables[k]: ix(outer) * factor + ix(inner)})
        group.space[k : k + 1] = [divide(size, factor), factor]
        group.variables[k : k + 1] = [outer, inner]


def _substitute(c: LoweringContext, group: Group, table: Mapping[Atom, Ix]) -> None:
    """Express the members in the new variables."""

    def found(a: Atom) -> Ix | None:
        return table.get(a)

    values = c.arena.rewrite([m.value for m in group.members], found, lambda e: None)
    for member, value in zip(group.members, values, strict=True):
        member.value, member.position = value, replace(member.position, found)


def _functions(group: Group, variable: Var, *, whole: bool = False) -> list[Fn]:
    """Quotients and remainders that hold the variable. whole: those of positions that vary along every dimension."""
    values = [m.value for m in group.members]
    positions = [p for e in walk(values) for p in indices(e)] + [m.position for m in group.members]
    if whole:
        varying = {v for v, size in zip(group.variables, group.space, strict=True) if size != ix(1)}
        positions = [p for p in positions if varying <= p.atoms()]
    atoms = [a for p in positions for a in p.atoms() if isinstance(a, Fn)]
    return [a for a in atoms if variable in a.a.atoms() or variable in a.b.atoms()]


def _factor(group: Group, variable: Var) -> Ix | None:
    """The one number that the variable itself is divided by, if there is one."""
    found = {a.b for a in _functions(group, variable) if a.a == ix(variable)}
    (factor,) = found if len(found) == 1 else (None,)
    return factor if factor is not None and (group.items[0].alone or factor.value in FACTORS) else None


def _divided_otherwise(group: Group, variable: Var, factor: Ix) -> bool:
    """Whether the variable is divided in other ways too."""
    return any(a.a != ix(variable) or a.b != factor for a in _functions(group, variable))
