"""A dimension that accesses divide by a number becomes two: `i // 4` and `i % 4` are loop variables then.

The opposite of merging dimensions (schedule.collapse), for what a pixel shuffle or an interleaving view leaves behind:
an index is split once for several neighbours, and it shows which accesses run along memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from hipwright.engine.fuse.groups import Group
from hipwright.engine.ir.expr import indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ix, Var, divide, ix, modulo, replace
from hipwright.engine.lower.core import LoweringContext

FACTORS = range(2, 65)


def unfold(c: LoweringContext, group: Group) -> None:
    """Split every dimension of a pointwise group of which accesses know nothing but quotient and remainder."""
    for k in reversed(range(len(group.space))):
        factor = _factor(group, group.variables[k])
        size = group.space[k]
        if factor is None or modulo(size, ix(factor)) != ix(0) or _apart(group, group.variables[k], factor):
            continue
        outer, inner = c.arena.var("v", divide(size, ix(factor))), c.arena.var("v", ix(factor))
        _substitute(c, group, {group.variables[k]: ix(outer) * factor + ix(inner)})
        group.space[k : k + 1] = [divide(size, ix(factor)), ix(factor)]
        group.variables[k : k + 1] = [outer, inner]


def _substitute(c: LoweringContext, group: Group, table: Mapping[Atom, Ix]) -> None:
    """Write the members over the new variables."""

    def found(a: Atom) -> Ix | None:
        return table.get(a)

    values = c.arena.rewrite([m.value for m in group.members], found, lambda e: None)
    for member, value in zip(group.members, values, strict=True):
        member.value, member.position = value, replace(member.position, found)


def _functions(group: Group, variable: Var) -> list[Fn]:
    """Quotients and remainders that hold the variable."""
    values = [m.value for m in group.members]
    positions = [p for e in walk(values) for p in indices(e)] + [m.position for m in group.members]
    atoms = [a for p in positions for a in p.atoms() if isinstance(a, Fn)]
    return [a for a in atoms if variable in a.a.atoms() or variable in a.b.atoms()]


def _factor(group: Group, variable: Var) -> int | None:
    """What the variable itself is divided by, where it is one number."""
    found = {a.b.value for a in _functions(group, variable) if a.a == ix(variable)}
    (factor,) = found if len(found) == 1 else (None,)
    return factor if factor in FACTORS else None


def _apart(group: Group, variable: Var, factor: int) -> bool:
    """Is the variable divided in other ways too?"""
    return any(a.a != ix(variable) or a.b != ix(factor) for a in _functions(group, variable))
