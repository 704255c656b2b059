"""Which way reductions of one group walk memory: along their rows, or across them."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.fuse.groups import Group, GroupMember
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix, Var, ix, product, replace
from hipwright.engine.lower.context import LoweringContext

CACHED = 1 << 22
"""Elements up to which the cache holds what a kernel reads in the wrong order. A round figure, not measured."""


def crosses(c: LoweringContext, group: Group, members: Sequence[GroupMember]) -> bool:
    """Whether the last member is a reduction that walks memory across the rows of the others, or they across its.

    So do the softmax of a matrix and that of its transpose (the symmetric loss of CLIP, Radford et al., ICML 2021): one
    kernel would read one of the two in an order that no cache line serves.
    """
    *before, last = members
    if last.role != "red" or c.hint(product(group.space)) <= CACHED:
        return False
    mine, ways = way(group, last), {way(group, m) for m in before if m.role == "red"}
    return bool(mine) and bool(ways - {mine, ""})


def way(group: Group, member: GroupMember) -> str:
    """ "along" or "across" where all of a reduction's loads that vary both ways go one way; else ""."""
    kept = [k for k in range(len(group.space)) if k not in group.dims]
    if not kept:
        return ""
    inner, outer = group.variables[group.dims[-1]], group.variables[kept[-1]]
    ways = set()
    for load in walk([member.value]):
        if load.op != "load" or not {inner, outer} <= load.attr[1].atoms():
            continue
        units = [step(load.attr[1], v) == ix(1) for v in (inner, outer)]
        ways.add("along" if units[0] else "across" if units[1] else "")
    return ways.pop() if len(ways) == 1 else ""


def step(position: Ix, variable: Var) -> Ix:
    """How far the next value of a variable is."""
    return replace(position, lambda atom: ix(variable) + 1 if atom == variable else None) - position


__all__ = ["CACHED", "crosses", "step", "way"]
