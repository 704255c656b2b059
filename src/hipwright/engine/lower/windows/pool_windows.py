"""Windows of pooling: walked by one thread each, or reduced as rows, where many threads share a long one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hipwright.engine.ir.expr import COMPUTE, E
from hipwright.engine.ir.index import ONE, Ind, Ix, divide, ix, product
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import Index, Tensor

LONGEST_WALK = 256
"""Elements of a window up to which one thread walks it. A round figure: windows of 6144 elements, one each of 128 x 48
planes, took an H200 804 us by a thread each, which its memory reads in 33.
"""
OCCUPIED = 1 << 17
"""Windows that overlap of which so many occupy the device: neighbouring threads read neighbouring elements."""


@dataclass(frozen=True)
class PoolWindows:
    """The windows of a pooling over the last dimensions of x.

    shape: of the result; sizes: of the largest window along each pooled dimension. at(i, taps): the index in x of an
    element of the window of output i, and tests that it is one. apart: few elements are in two windows.
    """

    x: Tensor
    shape: list[Ix]
    sizes: list[Ix]
    at: Callable[[Index, Sequence[Ix]], tuple[list[Ix], list[E | None]]]
    apart: bool

    @property
    def lead(self) -> int:
        """The number of dimensions that are not pooled."""
        return len(self.shape) - len(self.sizes)

    def element(self, c: LoweringContext, i: Index, taps: Sequence[Ix], neutral: float) -> E:
        """An element of the window of output i; `neutral` outside of it."""
        index, tests = self.at(i, taps)
        return c.arena.guard(c.arena.both(*tests), self.x.at(index), c.arena.const(neutral, COMPUTE[self.x.dtype]))


def pool_windows(
    c: LoweringContext,
    x: Tensor,
    shape: list[Ix],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> PoolWindows:
    """The windows of a pooling, with the bounds tests needed. shape: of its result."""
    n = len(kernel)

    def at(i: Index, taps: Sequence[Ix]) -> tuple[list[Ix], list[E | None]]:
        index, tests = list(i), []
        for j in range(n):
            d = x.rank - n + j
            index[d] = i[d] * stride[j] + taps[j] * dilation[j] - padding[j]
            if padding[j] or ceil:
                tests.append(c.arena.compare(index[d], ">=", ix(0)) if padding[j] else None)
                tests.append(c.arena.compare(index[d], "<", x.shape[d]))
        return index, tests

    apart = all(s >= d * (k - 1) + 1 for k, s, d in zip(kernel, stride, dilation, strict=True))
    return PoolWindows(x, shape, [ix(k) for k in kernel], at, apart)


def walked(c: LoweringContext, kind: str, w: PoolWindows) -> Callable[[Index], E]:
    """What one thread makes of the elements of an output's window: their sum, maximum, or the maximum's place."""
    variables = [c.arena.var("k", size) for size in w.sizes]
    taps = [ix(v) for v in variables]

    def at(i: Index) -> E:
        element = w.element(c, i, taps, 0 if kind == "sum" else -math.inf)
        return c.arena.loop(kind, variables, [(ix(0), size) for size in w.sizes], element)

    return at


def are_long(c: LoweringContext, w: PoolWindows) -> bool:
    """Whether windows are reduced as rows, since no thread should walk them."""
    return is_long(math.prod(c.hint(size) for size in w.sizes), c.numel_hint(w.shape), apart=w.apart)


def is_long(elements: int, windows: int, *, apart: bool) -> bool:
    """Whether no thread should walk a window of so many elements. apart: few elements are in two windows."""
    return elements > LONGEST_WALK and (apart or windows < OCCUPIED)


def reduced(c: LoweringContext, kind: str, w: PoolWindows, dtype: str) -> Tensor:
    """The "sum" or "max" of each window, in a compute dtype."""
    n, lead = len(w.sizes), w.lead
    one = [j for j in range(n) if w.shape[lead + j] == ONE]  # so that the windows of whole planes are contiguous rows
    outs = [*range(lead), *(lead + j for j in one)]
    order = [*((d, -1) for d in outs), *((-1, j) for j in one)]
    for j in range(n):
        order += [(lead + j, -1), (-1, j)] if j not in one else []
    space = [w.shape[d] if j < 0 else w.sizes[j] for d, j in order]
    neutral = 0.0 if kind == "sum" else -math.inf

    def at(index: Index) -> E:
        i, taps = [ix(0)] * len(w.shape), [ix(0)] * n
        for (d, j), place in zip(order, index, strict=True):
            if j < 0:
                i[d] = place
            else:
                taps[j] = place
        return w.element(c, i, taps, neutral)

    value = c.cast(c.tensor(w.x.dtype, space, at), dtype)
    flat = c.reduce(kind, value, [k for k, (_, j) in enumerate(order) if j >= 0])
    kept = [d for d, j in order if j < 0]
    return c.tensor(dtype, w.shape, lambda i: flat.at([i[d] for d in kept]))


def places(c: LoweringContext, w: PoolWindows) -> Tensor:
    """The flat position in its window of each maximum: of the last NaN where there are any, as torch's pools do."""
    space = [*w.shape, product(w.sizes)]

    def tap(index: Index) -> E:
        return w.element(c, index[:-1], unflatten(w.sizes, index[-1]), -math.inf)

    def nan(index: Index) -> E:
        value = tap(index)
        place = c.arena.index(index[-1])
        return c.arena.select(c.arena.binary("!=", value, value, "bool"), place, c.arena.const(-1, "long"))

    last = len(space) - 1
    best = c.reduce("argmax", c.tensor(w.x.dtype, space, tap), [last])
    undefined = c.reduce("max", c.tensor("int64", space, nan), [last])

    def found(i: Index) -> E:
        place = undefined.at(i)
        known = c.arena.binary(">=", place, c.arena.const(0, "long"), "bool")
        return c.arena.select(known, place, best.at(i))

    return c.tensor("int64", w.shape, found)


def plane_places(c: LoweringContext, w: PoolWindows) -> Tensor:
    """The flat position in its plane of each maximum."""
    within, plane = places(c, w), w.x.shape[w.lead :]

    def at(i: Index) -> E:
        index, _ = w.at(i, unflatten(w.sizes, ix(Ind(within.at(i)))))
        return c.arena.index(flatten(plane, index[w.lead :]))

    return c.tensor("int64", w.shape, at)


def bounds(x: Tensor, shape: Sequence[Ix], i: Index, n: int) -> list[tuple[Ix, Ix]]:
    """[first, behind the last) along each of the last n dimensions of the window of output i of adaptive pooling."""
    found = []
    for d in range(x.rank - n, x.rank):
        size, out = x.shape[d], shape[d]
        low, high = i[d] * size, (i[d] + 1) * size
        if size.value is not None and out.value and size.value % out.value == 0:
            step = size.value // out.value
            found.append((i[d] * step, (i[d] + 1) * step))
        else:
            found.append((divide(low, out), divide(high + out - 1, out)))
    return found


def adaptive_windows(c: LoweringContext, x: Tensor, shape: list[Ix], n: int) -> PoolWindows:
    """The windows of adaptive pooling."""
    sizes, uneven = [], []
    for size, out in zip(x.shape[-n:], shape[-n:], strict=True):
        if out == ONE:
            sizes.append(size)
        elif size.value is None or not out.value:
            sizes.append(divide(size + out - 1, out) + 1)
        else:
            sizes.append(ix(_longest(size.value, out.value)))
        uneven.append(out != ONE and not (size.value and out.value and size.value % out.value == 0))

    def at(i: Index, taps: Sequence[Ix]) -> tuple[list[Ix], list[E | None]]:
        index, tests = list(i), list[E | None]()
        for j, (low, high) in enumerate(bounds(x, shape, i, n)):
            index[x.rank - n + j] = low + taps[j] if shape[x.rank - n + j] != ONE else taps[j]
            if uneven[j]:
                tests.append(c.arena.compare(index[x.rank - n + j], "<", high))
        return index, tests

    return PoolWindows(x, shape, sizes, at, apart=True)


def _longest(size: int, out: int) -> int:
    """Elements of the longest window of one dimension."""
    return max(-(-(place + 1) * size // out) - place * size // out for place in range(out))


__all__ = [
    "PoolWindows",
    "adaptive_windows",
    "are_long",
    "bounds",
    "is_long",
    "places",
    "plane_places",
    "pool_windows",
    "reduced",
    "walked",
]
