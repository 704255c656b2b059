"""A captured graph in normal form: the values, whatever they were called. Pure; no torch."""

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
    """An argument that names a dimension, counted from 0."""

    index: int


Argument = Any  # Ref, Axis, None, bool, int, float, str, or a tuple of these


@dataclass(frozen=True)
class FormValue:
    """One computed tensor. Leaves are "input", "state" and "const"; an argument tells the first two apart."""

    op: str
    args: tuple[Argument, ...]
    dtype: str
    shape: tuple[int, ...]

    @property
    def leaf(self) -> bool:
        """Whether nothing computes it."""
        return self.op in ("input", "state", "const")


@dataclass
class NormalForm:
    """values in an order of computation; outputs: their ids, in the caller's order; writes: values that buffers get."""

    values: list[FormValue] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    _ids: dict[FormValue, int] = field(default_factory=dict)

    def put(self, value: FormValue) -> Ref:
        """The value's place; equal ones share it."""
        if value not in self._ids:
            self._ids[value] = len(self.values)
            self.values.append(value)
        return Ref(self._ids[value])

    def used(self) -> list[int]:
        """The ids that outputs and writes need, in order of computation."""
        wanted = {*self.outputs, *self.writes}
        for place in range(len(self.values) - 1, -1, -1):
            if place in wanted:
                wanted.update(refs(self.values[place].args))
        return sorted(wanted)


def refs(argument: Argument) -> list[int]:
    """The values an argument mentions, in order."""
    if isinstance(argument, Ref):
        return [argument.id]
    return [found for item in argument for found in refs(item)] if isinstance(argument, tuple) else []
