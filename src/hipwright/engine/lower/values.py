"""What lowering makes of a graph: values as functions of an index, items to compute and store, library calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hipwright.capture.graph import Node
from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import ONE, ZERO, Ix, divide, ix
from hipwright.engine.ir.shapes import flatten

Index = Sequence[Ix]

ROW_TILE = 128
"""Columns of a product that become one value of a `tiles` item."""


class NotLowered(Exception):
    """The operator stays a library call; the message says why."""


class Tensor:
    """A value: dtype, shape, and the expression of the element at an index."""

    def __init__(self, dtype: str, shape: Sequence[Ix], fn: Callable[[Index], E], buffer: str = "") -> None:
        self.dtype = dtype
        self.shape = list(shape)
        self._fn = fn
        self.buffer = buffer
        self.label = ""
        self._memo: dict[tuple[str, ...], E] = {}

    def at(self, index: Index) -> E:
        """The element at an index (one expression per dimension)."""
        clean = [ZERO if size == ONE else i for i, size in zip(index, self.shape, strict=True)]
        key = tuple(i.key for i in clean)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._fn(clean)
            if self.label and not found.label and found.op not in ("load", "const", "index"):
                found.label = self.label
        return found

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass(eq=False)
class LoweredItem:
    """A value that is computed and stored.

    kind: `pw` (pointwise), `red` (reduced over `dims` of `space`), `scan` (along a dimension), `call` (an output of a
    call template, engine/templates) or `tiles` (the reductions of ROW_TILE neighbours along the dimension `dims`, which
    becomes the last one: fuse/row_tiles.py).

    For `red`, `space` is the input's shape; the result keeps the other dimensions. `body` gives the input element.
    For `call`, `space` is what the template walks, `result` the shape in memory (as many elements, row-major), and
    `body` is not used.
    """

    name: str
    kind: str
    dtype: str
    space: list[Ix]
    body: Callable[[Index], E]
    dims: tuple[int, ...] = ()
    reduction: str = ""
    node: str = ""
    target: str = ""  # a module buffer that takes the result
    result: list[Ix] = field(default_factory=list)
    placed: Any = None  # the templates.offers.Placed that writes a `call` item
    alone: bool = False  # has a kernel of its own, which stores it: a copy in another order
    whole: bool = False  # of `tiles`: the one tile is all of the dimension
    place: Callable[[Index], Ix] | None = None  # where in the target an element of a part of it belongs

    def position(self, index: Index) -> Ix:
        """Where in memory the element at an index of the space lies."""
        return self.place(index) if self.place else flatten(self.space, index)

    @property
    def shape(self) -> list[Ix]:
        """The shape of the result."""
        if self.kind == "call":
            return self.result
        if self.kind == "tiles":
            kept = [s for i, s in enumerate(self.space) if i not in self.dims]
            whole = self.whole
            return [*kept, *(ONE if whole else divide(self.space[d] + (ROW_TILE - 1), ix(ROW_TILE)) for d in self.dims)]
        if self.kind != "red":
            return self.space
        return [s for i, s in enumerate(self.space) if i not in self.dims]


@dataclass(eq=False)
class LibraryCall:
    """An operator that the plan leaves to PyTorch."""

    node: Node
    reason: str
    outputs: list[str] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)  # node name -> the plan's tensor
    channels_last: bool = False  # its image and its result are stored channels last
