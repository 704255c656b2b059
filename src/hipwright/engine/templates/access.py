"""How the accesses of a kernel traverse memory: which loads are unconditional, and along which variable they run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hipwright.engine.ir.expr import E, indices, walk
from hipwright.engine.ir.index import Atom, Fn, Ind, Ix, Sym, Var, ix


def unconditional_loads(values: Sequence[E], stop: Collection[int] = ()) -> Iterator[E]:
    """Loads that every element performs: none under a condition, in a loop or below an expression in `stop` (ids)."""
    stack, done = list(reversed(values)), set[int]()
    while stack:
        e = stack.pop()
        if e.id in done or e.id in stop:
            continue
        done.add(e.id)
        if e.op == "load":
            yield e
        stack.extend(reversed(e.args[:1] if e.op == "guard" else () if e.op == "loop" else e.args))


def linear(position: Ix, name: str) -> tuple[Ix, Ix] | None:
    """(coefficient of a variable, the rest), or None where the position is not linear in the variable."""
    slope: dict[tuple[Atom, ...], int] = {}
    rest: dict[tuple[Atom, ...], int] = {}
    for mono, k in position.terms.items():
        hits = [a for a in mono if isinstance(a, Var) and a.name == name]
        others = tuple(a for a in mono if not (isinstance(a, Var) and a.name == name))
        if len(hits) > 1 or any(_in_function(a, name) for a in others):
            return None
        (slope if hits else rest)[others if hits else mono] = k
    return Ix(slope), Ix(rest)


def _in_function(a: Atom, name: str) -> bool:
    return isinstance(a, Fn) and any(isinstance(b, Var) and b.name == name for b in a.a.atoms() | a.b.atoms())


def shifted(a: Atom, axis: str) -> Ix | None:
    """The variable `axis` plus v, for any other atom None: for index.replace."""
    return ix(a) + ix(Var("v")) if isinstance(a, Var) and a.name == axis else None


def has_unit_stride(position: Ix, axis: str) -> bool:
    """Whether the position grows by one with the axis, outside of quotients, remainders and gathered indices."""
    mine = [a for a in position.terms if any(isinstance(x, Var) and x.name == axis for x in a)]
    if len(mine) != 1 or len(mine[0]) != 1 or position.terms[mine[0]] != 1:
        return False
    return not any(_depends_on(a, axis) for a in position.atoms() if not isinstance(a, Var))


def other_strides(position: Ix, axis: str) -> list[Ix]:
    """The strides of a position other than along the axis."""
    others = [(mono, c) for mono, c in position.terms.items() if not any(_is(a, axis) for a in mono)]
    return [Ix({tuple(a for a in mono if isinstance(a, Sym)): c}) for mono, c in others]


def _is(a: Atom, axis: str) -> bool:
    return isinstance(a, Var) and a.name == axis


def _depends_on(a: Atom, axis: str) -> bool:
    """Whether a quotient, a remainder or a gathered index contains the axis."""
    if isinstance(a, Ind):
        return any(_names(p, axis) for e in walk([a.value]) for p in indices(e))
    return isinstance(a, Fn) and (_names(a.a, axis) or _names(a.b, axis))


def _names(p: Ix, axis: str) -> bool:
    return any(isinstance(a, Var) and a.name == axis for a in p.atoms())
