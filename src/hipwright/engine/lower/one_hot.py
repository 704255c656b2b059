"""Sums along a dimension of which at most one term is not zero: of a cross entropy's gradient, of a one-hot matrix.

The term `r == position && condition ? value : 0` is there once if the position lies in the dimension, so that its sum
needs no loop, and what reads it no row of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from hipwright.engine.ir.expr import E, ExprArena, indices, walk
from hipwright.engine.ir.index import Ix, Var, ix


def summed_one_hot(arena: ExprArena, element: E, variable: Var, size: Ix) -> E | None:
    """The sum of an element over a variable from 0 to size - 1; None if more than one term may differ from zero."""
    if element.op != "sel" or element.args[2].op != "const" or element.args[2].attr != 0:
        return None
    condition, value, zero = element.args
    places: list[E] = []
    rest: list[E] = []
    for part in _conjuncts(condition):
        other = _place(part, variable)
        (places if other is not None else rest).append(other if other is not None else part)
    if len(places) != 1 or any(_uses(e, variable) for e in (*places, *rest, value)):
        return None
    place = arena.cast(places[0], "long")
    inside = arena.binary("<", place, arena.index(size), "bool")
    inside = arena.binary("&&", arena.binary(">=", place, arena.const(0, "long"), "bool"), inside)
    for part in rest:
        inside = arena.binary("&&", inside, part)
    return arena.select(inside, value, zero)


def _conjuncts(e: E) -> Iterator[E]:
    if e.op == "bin" and e.attr == "&&":
        for part in e.args:
            yield from _conjuncts(part)
    else:
        yield e


def _place(e: E, variable: Var) -> E | None:
    """What the variable is compared with by `variable == place`, an integer."""
    if e.op != "bin" or e.attr != "==":
        return None
    a, b = e.args
    for one, other in ((a, b), (b, a)):
        if one.op == "index" and one.attr == ix(variable) and other.ctype in ("int", "long"):
            return other
    return None


def _uses(e: E, variable: Var) -> bool:
    return any(variable in position.atoms() for part in walk([e]) for position in indices(part))
