"""Short runs of a reduced tensor that read one gathered element each: one thread sums a run, so that it gathers once.

A margin loss subtracts the score of the target from every score of a row of ten. Element by element each thread would
divide its position, load the target's number, and wait for the score that it names, ten times for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.emit.statements import Emitter
from hipwright.engine.fuse.groups import ROW, Group
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import ZERO, Ind, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import depends

SHORT, MANY = 32, 1 << 12
"""Elements of a run at most, and runs from which one for each thread gives several blocks work."""


def sum_runs(c: LoweringContext, group: Group) -> None:
    """Makes the sums over the innermost dimension of a group's reductions loops of one thread (in place)."""
    if not _has_runs(c, group):
        return
    last, size = group.variables.pop(), group.space.pop()
    for member in (m for m in group.members if m.role == "red"):
        member.value = c.arena.loop("sum", [last], [(ZERO, size)], member.value)
    group.dims, group.run = group.dims[:-1], size


def _has_runs(c: LoweringContext, group: Group) -> bool:
    last = len(group.space) - 1
    if group.kind != "fused" or len(group.dims) < 2 or group.dims[-1] != last or group.column_sums:
        return False
    if not 1 < c.hint(group.space[last]) <= SHORT or c.hint(product(group.inner[:-1])) < MANY:
        return False
    sums = [m for m in group.members if m.role == "red"]
    if any(m.role not in ("red", ROW) for m in group.members) or any(m.item.reduction != "sum" for m in sums):
        return False
    values = [m.value for m in sums]
    return not any(e.op == "row" for e in walk(values)) and bool(_gathered(values, group.variables[last].name))


def _gathered(values: Sequence[E], variable: str) -> list[E]:
    """Loads of gathered elements that are the same at every step of a variable."""
    memo: dict[int, bool] = {}
    loads = [e for e in unconditional_loads(values) if any(isinstance(a, Ind) for a in e.attr[1].atoms())]
    return [e for e in loads if not depends(e, {variable}, memo)]


def bind_gathered(emit: Emitter, value: E) -> None:
    """Loads what a run's loop gathers, before it: compilers leave in the loop what a condition may skip."""
    for load in _gathered(value.args[:1], value.attr.variables[0].name) if value.op == "loop" else ():
        emit.bind(load)
