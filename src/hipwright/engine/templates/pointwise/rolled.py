"""Neighbours along periodic rows: a vector moved by one element has all but one of its elements in the vector itself.

As single elements, each of four neighbours is a load of its own with lanes 16 bytes apart, and a remainder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import Atom, Fn, Ind, Ix, Var, ix
from hipwright.engine.templates.access import unconditional_loads


@dataclass(frozen=True)
class RolledLoad:
    """The load of element `r + step` of a periodic row that begins at `start`; place: element `r`; step: 1 or -1."""

    load: E
    start: Ix
    place: Ix
    step: int

    @property
    def key(self) -> tuple[str, str]:
        """(buffer, key of the position)."""
        return self.load.attr[0], self.load.attr[1].key


def rolled_loads(values: Sequence[E], variable: str, width: Ix) -> list[RolledLoad]:
    """The unconditional loads of a row's neighbours, one element away."""
    found = (_rolled(e, variable, width) for e in unconditional_loads(values))
    return [load for load in found if load is not None]


def _rolled(e: E, variable: str, width: Ix) -> RolledLoad | None:
    position: Ix = e.attr[1]
    mine = [mono for mono in position.terms if any(_is(a, variable) for a in Ix({mono: 1}).atoms())]
    if len(mine) != 1 or len(mine[0]) != 1 or position.terms[mine[0]] != 1:
        return None
    (place,) = mine[0]
    if not isinstance(place, Fn) or place.op != "%" or place.b != width:
        return None
    row = next(a for a in place.a.atoms() if _is(a, variable))
    step = {ix(1).key: 1, (width - 1).key: -1}.get((place.a - ix(row)).key)
    if not step or any(isinstance(a, Ind) for a in position.atoms()):
        return None
    return RolledLoad(e, position - ix(place), position - ix(place) + ix(row), step)


def _is(a: Atom, variable: str) -> bool:
    return isinstance(a, Var) and a.name == variable
