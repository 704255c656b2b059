"""A group: the items that one kernel computes, over one iteration space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hipwright.engine.ir.expr import E, ExprArena
from hipwright.engine.ir.index import Ix, Var, ix
from hipwright.engine.lower.values import LoweredItem

FULL, ROW, PART = "full", "row", "part"
"""Roles of members: an element for each point of the space, one for each row, or columns of another number than the
row's (a chunk, a slice)."""


def base_name(name: str) -> str:
    """The item of a member's name: members of the parts of one item are `add`, `add/1`, `add/2`."""
    return name.partition("/")[0]


@dataclass(eq=False)
class GroupMember:
    """An item over a group's variables: its element, and the position in memory at which that is stored."""

    item: LoweredItem
    role: str  # "red", "call", FULL, ROW or PART
    value: E
    position: Ix


def positions(arena: ExprArena, members: Sequence[GroupMember]) -> list[E]:
    """Where members are stored, as expressions: a place may be read from a tensor."""
    return [arena.index(member.position) for member in members]


def as_position(e: E) -> Ix:
    """The position that an expression of `positions` stands for."""
    return ix(e.attr)


@dataclass(eq=False)
class Group:
    """Items that one kernel computes. space: sizes of the iteration space, dims: its reduced dimensions, variables: the
    loop variables, in the order of space.
    """

    number: int
    space: list[Ix]
    dims: tuple[int, ...]
    items: list[LoweredItem] = field(default_factory=list)
    members: list[GroupMember] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    columns: dict[str, Var] = field(default_factory=dict)  # the column variable of PART members, by their width's key
    kind: str = "fused"  # or "scan" or "call"
    short_rows: bool = False  # a thread computes all elements of short rows, which are members each (state_rows.py)
    run: Ix | None = None  # elements of an innermost dimension that a thread sums by itself (rows/run_sums.py)
    folded: int = 1  # parts of a row of which a thread has an element of each (rows/folded_parts.py)
    column_sums: dict[str, Ix] = field(default_factory=dict)  # fused column reductions, and how many blocks sum each

    @property
    def outer(self) -> list[Ix]:
        """Sizes of the kept dimensions."""
        return [s for k, s in enumerate(self.space) if k not in self.dims]

    @property
    def inner(self) -> list[Ix]:
        """Sizes of the reduced dimensions."""
        return [self.space[k] for k in self.dims]
