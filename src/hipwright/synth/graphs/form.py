"""The normal form of a captured graph: its values without their names. Pure, without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMMUTATIVE = frozenset(
    {
        "add",
        "mul",
        "maximum",
        "minimum",
        "eq",
        "ne",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "logical_and",
        "logical_or",
        "logical_xor",
    }
)
LAYOUT = frozenset({"reshape", "permute", "expand", "cast"})
"""Operators that move or convert elements and compute nothing."""


@dataclass(frozen=True)
class Ref:
    """An argument that is another value."""

    id: int


@dataclass(frozen=True)
class DimArgument:
    """An argument that is a dimension, counted from 0."""

    index: int


Argument = Any  # Ref, DimArgument, None, bool, int, float, str, or a tuple of these


@dataclass(frozen=True)
class FormValue:
    """One tensor: an operator's result, or a leaf with the operator "input", "state" or "const".

    The argument of an input or a state is its position, that of a constant its value.
    """

    op: str
    args: tuple[Argument, ...]
    dtype: str
    shape: tuple[int, ...]

    @property
    def leaf(self) -> bool:
        """Whether the value is an input, a state or a constant."""
        return self.op in ("input", "state", "const")


@dataclass
class NormalForm:
    """values: in an order of computation; outputs: ids in output order; writes: ids of values stored to buffers."""

    values: list[FormValue] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    _ids: dict[FormValue, int] = field(default_factory=dict)

    def put(self, value: FormValue) -> Ref:
        """Add a value unless an equal one is there; the reference to it."""
        if value not in self._ids:
            self._ids[value] = len(self.values)
            self.values.append(value)
        return Ref(self._ids[value])

    def used(self) -> list[int]:
        """The ids of values that outputs and writes depend on, in order of computation."""
        needed = {*self.outputs, *self.writes}
        for place in range(len(self.values) - 1, -1, -1):
            if place in needed:
                needed.update(refs(self.values[place].args))
        return sorted(needed)


def refs(argument: Argument) -> list[int]:
    """The ids of the values that an argument refers to, in order."""
    if isinstance(argument, Ref):
        return [argument.id]
    return [found for item in argument for found in refs(item)] if isinstance(argument, tuple) else []
