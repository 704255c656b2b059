"""Values of a pointwise kernel that depend on an element's column alone: biases, weights, statistics of columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hipwright.engine.fuse.groups import FULL, Group, GroupMember
from hipwright.engine.ir.expr import E, walk
from hipwright.engine.ir.index import ix
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.templates.access import unconditional_loads
from hipwright.engine.templates.base import depends


def column_values(values: Sequence[E], inner: set[str], outer: set[str]) -> list[E]:
    """The largest expressions that load what depends on variables of `inner` and on none of `outer`.

    None below a condition, so that all elements of a column may compute them.
    """
    along, across = dict[int, bool](), dict[int, bool]()
    found: list[E] = []
    stack, seen = list(reversed(values)), set[int]()
    while stack:
        e = stack.pop()
        if e.id in seen or not depends(e, inner, along):
            continue
        seen.add(e.id)
        if not depends(e, outer, across) and any(a.op == "load" for a in walk([e])):
            found.append(e)
        else:
            stack.extend(reversed(e.args[:1] if e.op == "guard" else e.args))
    return found


def columns_to_keep(group: Group, stored: Collection[GroupMember]) -> list[E]:
    """The values of columns that a thread may keep for several rows; [] where others of its accesses are not those of
    its own element, or where there are none.
    """
    values = [m.value for m in stored]
    if len(group.space) < 2 or group.short_rows or any(e.op in ("loop", "row") for e in walk(values)):
        return []
    inner, outer = {group.variables[-1].name}, {v.name for v in group.variables[:-1]}
    flat = flatten(group.space, [ix(v) for v in group.variables])
    if any(m.role != FULL or m.item.place or m.position != flat for m in stored):
        return []
    found = column_values(values, inner, outer)
    kept, memo = {e.id for e in found}, dict[int, bool]()
    always = {e.id for e in unconditional_loads(values, kept)}
    for e in loads_beside(values, kept):
        own = e.attr[1] == flat and e.id in always
        if not own and depends(e, inner | outer, memo):
            return []
    return found


def loads_beside(values: Sequence[E], kept: Collection[int]) -> list[E]:
    """The loads that are not below an expression in `kept` (ids)."""
    return [e for e in walk(values, kept) if e.op == "load"]
