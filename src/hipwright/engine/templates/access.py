"""How a kernel's accesses walk memory: which run along a variable, and the wide loads and stores for those that do."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ind, Ix, Sym, Var, ix


def step(a: Atom, axis: str) -> Ix | None:
    """The axis' variable moved by v."""
    return ix(a) + ix(Var("v")) if isinstance(a, Var) and a.name == axis else None


def unit(position: Ix, axis: str) -> bool:
    """Does the position grow by one with the axis, in a plain way? What a gather adds may not change with it."""
    mine = [a for a in position.terms if any(isinstance(x, Var) and x.name == axis for x in a)]
    if len(mine) != 1 or len(mine[0]) != 1 or position.terms[mine[0]] != 1:
        return False
    return not any(_holds(a, axis) for a in position.atoms() if not isinstance(a, Var))


def strides_beside(position: Ix, axis: str) -> list[Ix]:
    """What a position may move by other than along the axis."""
    others = [(mono, c) for mono, c in position.terms.items() if not any(_is(a, axis) for a in mono)]
    return [Ix({tuple(a for a in mono if isinstance(a, Sym)): c}) for mono, c in others]


def _is(a: Atom, axis: str) -> bool:
    return isinstance(a, Var) and a.name == axis


def _holds(a: Atom, axis: str) -> bool:
    """Is the axis inside a quotient, a remainder or a gathered index?"""
    if isinstance(a, Ind):
        return any(_names(p, axis) for e in walk([a.value]) for p in indices(e))
    return isinstance(a, Fn) and (_names(a.a, axis) or _names(a.b, axis))


def _names(p: Ix, axis: str) -> bool:
    return any(isinstance(a, Var) and a.name == axis for a in p.atoms())


def certain_loads(values: Sequence[E]) -> list[E]:
    """Loads that are always performed: none under a condition or in a window."""
    out, stack, done = [], list(reversed(values)), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done:
            continue
        done.add(e.id)
        if e.op == "load":
            out.append(e)
        stack.extend(reversed(e.args[:1] if e.op == "guard" else () if e.op == "loop" else e.args))
    return out
