"""Indices of a shape: row-major positions, and the same element's index in another shape."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.engine.ir.index import ONE, ZERO, Ix, divide, ix, modulo


def strides(shape: Sequence[Ix]) -> list[Ix]:
    """Row-major strides."""
    out: list[Ix] = []
    step = ONE
    for size in reversed(shape):
        out.append(step)
        step = step * size
    return out[::-1]


def row_major(shape: Sequence[object], stride: Sequence[object]) -> bool:
    """Whether a tensor of fixed sizes lies row-major in memory."""
    if any(isinstance(s, str) for s in (*shape, *stride)):
        return False
    expected = [s.value for s in strides([ix(int(str(n))) for n in shape])]
    return all(n == 1 or a == b for n, a, b in zip(shape, expected, stride, strict=True))


def flatten(shape: Sequence[Ix], index: Sequence[Ix]) -> Ix:
    """The row-major position of an index."""
    total = ZERO
    for step, i, size in zip(strides(shape), index, shape, strict=True):
        if size != ONE:
            total = total + step * i
    return total


def unflatten(shape: Sequence[Ix], position: Ix) -> list[Ix]:
    """The index of a row-major position."""
    out = []
    for k, step in enumerate(strides(shape)):
        quotient = divide(position, step)
        out.append(ZERO if shape[k] == ONE else (modulo(quotient, shape[k]) if k else quotient))
    return out


def reindex(source: Sequence[Ix], target: Sequence[Ix], index: Sequence[Ix]) -> list[Ix]:
    """The index into `target` of the element at `index` of `source`; both hold the same number of elements.

    Sizes are matched in groups of equal product, so that a split or merge of one dimension leaves the others alone.
    """
    out: list[Ix] = []
    s = t = 0
    while t < len(target):
        if s >= len(source):
            out.extend([ZERO] * (len(target) - t))
            break
        i, j = s + 1, t + 1
        match = _match(source, target, s, t)
        if match is None:
            i, j = len(source), len(target)
        else:
            i, j = match
        if i - s == 1 and j - t == 1:
            out.append(index[s])
        else:
            out.extend(unflatten(target[t:j], flatten(source[s:i], index[s:i])))
        s, t = i, j
    return out


def _match(source: Sequence[Ix], target: Sequence[Ix], s: int, t: int) -> tuple[int, int] | None:
    """The shortest runs from s and t with equal products, None when there are none."""
    left: dict[str, int] = {}
    total = ONE
    for i in range(s, len(source)):
        total = total * source[i]
        left.setdefault(total.key, i + 1)
    total = ONE
    for j in range(t, len(target)):
        total = total * target[j]
        if total.key in left:
            return left[total.key], j + 1
    return None
