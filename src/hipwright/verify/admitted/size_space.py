"""The sizes of a task that a program may meet: shapes by the sizes of the task's free symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hipwright.task.sizes import Shapes, SharedSize, elements


@dataclass(frozen=True)
class SizeSpace:
    """Shapes near the given ones. symbols: sizes that the reference lets change, each at all of its places."""

    given: Shapes
    symbols: tuple[SharedSize, ...]

    def put(self, shapes: Shapes, sizes: Mapping[SharedSize, int]) -> Shapes:
        """Some shapes with other sizes for some symbols."""
        changed = [list(shape) for shape in shapes]
        for symbol, size in sizes.items():
            for leaf, dim in symbol.places:
                changed[leaf][dim] = size
        return tuple(tuple(shape) for shape in changed)

    def size(self, shapes: Shapes, symbol: SharedSize) -> int:
        """The size of a symbol in some shapes."""
        leaf, dim = symbol.places[0]
        return shapes[leaf][dim]

    @cached_property
    def elements(self) -> int:
        """Elements of the given inputs."""
        return elements(self.given)
