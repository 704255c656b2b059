"""Finds shapes at which a comparison comes out the other way, by following the plan at candidate sizes.

A comparison's gap (left minus right) is mostly linear or monotone in one size: secant steps, doubling and halving find
its root. Remainders and equalities are found by the numbers of the program's text and by small steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from hipwright.task.sizes import Shapes, SharedSize, elements
from hipwright.verify.admitted.size_space import SizeSpace
from hipwright.verify.admitted.trace import ShapeTrace, Side

LARGEST_SIZE = 1 << 31  # of a symbol
_ATTEMPTS = 32  # shapes followed for one side
_BASES = 2
_DOUBLINGS = 12
_SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025)
_STEPS = (1, 2, 64, 4096)
"""Multiples of a size by which it grows to see whether a comparison depends on it."""
_PERIODIC = re.compile(r"[%&/|^]|>>")
_NUMBER = re.compile(r"\b\d{1,10}\b")

Follow = Callable[[Shapes], ShapeTrace]


class SideSearch:
    """Searches shapes for sides. trace: what the plan does at some shapes. budget: shapes traced in all."""

    def __init__(self, space: SizeSpace, trace: Follow, budget: int) -> None:
        self.space, self._trace, self.budget = space, trace, budget
        self._known: dict[Shapes, ShapeTrace] = {}

    def follow(self, shapes: Shapes) -> ShapeTrace:
        """The trace at some shapes; an empty one once the budget is spent."""
        if shapes not in self._known:
            if self.budget <= 0:
                return ShapeTrace()
            self.budget -= 1
            self._known[shapes] = self._trace(shapes)
        return self._known[shapes]

    def shapes_for(self, side: Side, known: Sequence[Shapes]) -> Iterator[Shapes]:
        """Shapes at which a side is taken, from small bases first.

        known: shapes at which the comparison was reached, among others.
        """
        reached = [shapes for shapes in known if side[0] in self.follow(shapes).compared]
        reached.sort(key=elements)
        left = _ATTEMPTS
        for base in reached[:_BASES]:
            for symbol in self.space.symbols:
                for size in self._sizes(side, base, symbol):
                    if left <= 0 or self.budget <= 0:
                        return
                    left -= 1
                    shapes = self.space.put(base, {symbol: size})
                    if side in self.follow(shapes).sides:
                        yield self._smaller(side, shapes, symbol)

    def _smaller(self, side: Side, shapes: Shapes, kept: SharedSize) -> Shapes:
        """The shapes with other symbols at a small size where the side stays."""
        for symbol in self.space.symbols:
            if symbol != kept and self.space.size(shapes, symbol) > 3:
                for size in (2, 3, 1):
                    tried = self.space.put(shapes, {symbol: size})
                    if elements(shapes) > 1 << 12 and side in self.follow(tried).sides:
                        shapes = tried
                        break
        return shapes

    def _sizes(self, side: Side, base: Shapes, symbol: SharedSize) -> Iterator[int]:
        """Sizes of a symbol to try from a base, without repeats."""
        tried = {now := self.space.size(base, symbol)}
        for size in self._proposals(side, base, symbol, now):
            if size not in tried and 1 <= size < LARGEST_SIZE:
                tried.add(size)
                yield size

    def _gap(self, side: Side, base: Shapes, symbol: SharedSize, size: int) -> int | None:
        found = self.follow(self.space.put(base, {symbol: size})).compared.get(side[0])
        return None if found is None else found.gap

    def _proposals(self, side: Side, base: Shapes, symbol: SharedSize, now: int) -> Iterator[int]:
        gap = self._gap(side, base, symbol, now)
        slopes: list[float] = []
        for step in _STEPS:
            other = self._gap(side, base, symbol, now + step * now)
            if gap is None or other is None or other == gap:
                continue
            slope = (other - gap) / (step * now)
            if not slopes:
                yield from (2, 3, 1)
            root = round(now - gap / slope)
            yield from (root, root + 1, root - 1)
            slopes.append(slope)
            if len(slopes) == 2:
                break
        if not slopes:
            return  # this size has no part in the comparison
        linear = len(slopes) == 2 and slopes[0] == slopes[1] and not _PERIODIC.search(side[0].text)
        root = round(now - (gap or 0) / slopes[0])
        if linear and (root < 0 or any(self._takes(side, base, symbol, size) for size in (root - 1, root, root + 1))):
            return  # no size, or those above
        yield from self._doubled(side, base, symbol, now)
        yield from (now + step for step in range(1, 5))
        for text in _NUMBER.findall(side[0].text)[:6]:
            yield from (int(text), int(text) + 1, int(text) - 1)
        yield from _SMALL

    def _takes(self, side: Side, base: Shapes, symbol: SharedSize, size: int) -> bool:
        return size > 0 and side in self.follow(self.space.put(base, {symbol: size})).sides

    def _doubled(self, side: Side, base: Shapes, symbol: SharedSize, now: int) -> Iterator[int]:
        """The smallest size above which a monotone comparison takes the side: by doubling, then by halves."""

        low = now
        for _ in range(_DOUBLINGS):
            if self._takes(side, base, symbol, 2 * low):
                high = 2 * low
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (low, middle) if self._takes(side, base, symbol, middle) else (middle, high)
                yield from (high, 2 * high)
                return
            low *= 2
