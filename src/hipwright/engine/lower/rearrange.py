"""Values put together from parts or elements moved: flips, concatenation, padding, triangles, shuffles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, E
from hipwright.engine.ir.index import ONE, ZERO, Ind, Ix, ix
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import as_int, dims_of, op
from hipwright.engine.lower.values import Index, NotLowered, Tensor
from hipwright.engine.lower.views import remap, select_position, slice_start


@op("flip")
def flip(c: LoweringContext, meta: Meta, x: Tensor, dims: Sequence[int]) -> Tensor:
    """Reversed along dimensions."""
    turned = dims_of(list(dims), x.rank) if dims else []
    return remap(c, x, x.shape, lambda i: [x.shape[j] - 1 - k if j in turned else k for j, k in enumerate(i)])


@op("flipud")
def flipud(c: LoweringContext, meta: Meta, x: Tensor) -> Tensor:
    """Reversed along the first dimension."""
    return flip(c, meta, x, [0])


@op("fliplr")
def fliplr(c: LoweringContext, meta: Meta, x: Tensor) -> Tensor:
    """Reversed along the second dimension."""
    return flip(c, meta, x, [1])


@op("roll")
def roll(c: LoweringContext, meta: Meta, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Rotated along dimensions."""
    if not dims:
        if x.rank != 1:
            raise NotLowered("it rolls the flattened tensor")
        dims = [0]
    moves = {d % x.rank: s for d, s in zip(dims, shifts, strict=True)}

    def at(i: Index) -> list[Ix]:
        out = list(i)
        for d, s in moves.items():
            size = x.shape[d]
            shift = -as_int(s)
            if size.value:
                back = ix(shift % size.value)
            else:
                back = ix(shift) if shift >= 0 else size - (ix(-shift) % size if shift < -1 else 1)
            out[d] = (i[d] + back) % size
        return out

    return remap(c, x, x.shape, at)


@op("cat", "concat", "concatenate")
def cat(c: LoweringContext, meta: Meta, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joined along a dimension."""
    parts = [t for t in tensors if not (t.rank == 1 and t.shape[0] == ZERO)] or [tensors[0]]
    d = dim % parts[0].rank
    shape = c.shape(meta)
    starts = [ZERO]
    for t in parts:
        starts.append(starts[-1] + t.shape[d])

    def at(i: Index) -> E:
        def part(k: int) -> E:
            inside = [x - starts[k] if j == d else x for j, x in enumerate(i)]
            e = c.arena.cast(parts[k].at(inside), COMPUTE[meta.dtype])
            if k == len(parts) - 1:
                return e
            return c.arena.guard(c.arena.compare(i[d], "<", starts[k + 1]), e, part(k + 1))

        return part(0)

    return c.tensor(meta.dtype, shape, at)


@op("stack")
def stack(c: LoweringContext, meta: Meta, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Joined along a new dimension."""
    d = dim % (tensors[0].rank + 1)
    rows = [remap(c, t, [*t.shape[:d], ONE, *t.shape[d:]], lambda i: [*i[:d], *i[d + 1 :]]) for t in tensors]
    return cat(c, meta, rows, d)


def _at_least(c: LoweringContext, x: Tensor, rank: int) -> Tensor:
    """With dimensions of size 1, as torch.atleast_2d and atleast_3d add them: in front, the third one behind."""
    while x.rank < rank:
        behind = x.rank == 2
        shape = [*x.shape, ONE] if behind else [ONE, *x.shape]
        x = remap(c, x, shape, _but_the_last if behind else _but_the_first)
    return x


def _but_the_last(i: Index) -> Sequence[Ix]:
    return i[:-1]


def _but_the_first(i: Index) -> Sequence[Ix]:
    return i[1:]


@op("hstack")
def hstack(c: LoweringContext, meta: Meta, tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the second dimension, vectors along their only one."""
    parts = [_at_least(c, x, 1) for x in tensors]
    return cat(c, meta, parts, 0 if parts[0].rank == 1 else 1)


@op("vstack")
def vstack(c: LoweringContext, meta: Meta, tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the first dimension; vectors are rows."""
    return cat(c, meta, [_at_least(c, x, 2) for x in tensors], 0)


@op("dstack")
def dstack(c: LoweringContext, meta: Meta, tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the third dimension."""
    return cat(c, meta, [_at_least(c, x, 3) for x in tensors], 2)


@op("constant_pad_nd", "pad")
def pad(c: LoweringContext, meta: Meta, x: Tensor, amounts: Sequence[Any], *rest: Any, **kwargs: Any) -> Tensor:
    """Padded with a value (mode constant only for `pad`)."""
    mode = rest[0] if rest and isinstance(rest[0], str) else "constant"
    numbers = [r for r in rest if not isinstance(r, str) and r is not None]
    value = kwargs.get("value", numbers[0] if numbers else 0)
    if mode == "constant":
        return _constant_pad(c, meta, x, amounts, 0 if value is None else value)
    return edge_pad(c, meta, x, amounts, mode)


def _before(x: Tensor, amounts: Sequence[Any]) -> dict[int, Ix]:
    return {x.rank - 1 - k: ix(a) if isinstance(a, int) else a for k, a in enumerate(amounts[::2])}


def _constant_pad(c: LoweringContext, meta: Meta, x: Tensor, amounts: Sequence[Any], value: Any) -> Tensor:
    shape, before = c.shape(meta), _before(x, amounts)

    def at(i: Index) -> E:
        inside = [k - before.get(j, ZERO) for j, k in enumerate(i)]
        tests = []
        for d in before:
            tests.append(c.arena.compare(i[d], ">=", before[d]) if before[d] != ZERO else None)
            if x.shape[d] + before[d] != shape[d]:  # (-1, 1) moves: the sizes are equal, and the last is padding
                tests.append(c.arena.compare(inside[d], "<", x.shape[d]))
        return c.arena.guard(c.arena.both(*tests), x.at(inside), c.arena.const(value, COMPUTE[x.dtype]))

    return c.tensor(x.dtype, shape, at)


def edge_pad(c: LoweringContext, meta: Meta, x: Tensor, amounts: Sequence[Any], mode: str) -> Tensor:
    """Padding by reflection or by the edge's value."""
    shape, before = c.shape(meta), _before(x, amounts)

    def at(i: Index) -> E:
        out = list(i)
        for d, start in before.items():
            k = c.arena.index(i[d] - start)
            out[d] = _read(c, c.arena.call(f"{mode}_index", k, c.arena.index(x.shape[d]), ctype="long"))
        return x.at(out)

    if mode not in ("reflect", "replicate", "circular"):
        raise NotLowered(f"padding mode {mode}")
    if mode == "circular" and any(_turned(*pair) for pair in zip(amounts[::2], amounts[1::2], strict=True)):
        raise NotLowered("circular padding of what is cropped at the other end")
    return c.tensor(x.dtype, shape, at)


def _turned(before: Any, after: Any) -> bool:
    """Whether one of two amounts of padding crops and the other may add."""
    known = [amount.value if isinstance(amount, Ix) else amount for amount in (before, after)]
    return any(n is not None and n < 0 for n in known) and any(n is None or n > 0 for n in known)


def _read(c: LoweringContext, e: E) -> Ix:
    if e.op == "index":
        position: Ix = e.attr
        return position
    return ix(Ind(e))


for _mode, _names in (("reflect", "reflection_pad"), ("replicate", "replication_pad")):
    for _rank in (1, 2, 3):

        def _handler(c: LoweringContext, meta: Meta, x: Tensor, amounts: Sequence[Any], mode: str = _mode) -> Tensor:
            return edge_pad(c, meta, x, amounts, mode)

        op(f"{_names}{_rank}d")(_handler)


def triangle(c: LoweringContext, name: str, x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower or upper triangle of the last two dimensions, zero elsewhere."""

    def at(i: Index) -> E:
        row, column = c.arena.index(i[-2] + diagonal), c.arena.index(i[-1])
        inside = c.arena.binary("<=" if name == "tril" else ">=", column, row, "bool")
        return c.arena.guard(inside, x.at(i), c.arena.const(0, COMPUTE[x.dtype]))

    return c.tensor(x.dtype, x.shape, at)


def _triangle(name: str) -> Callable[..., Tensor]:
    return lambda c, meta, x, diagonal=0: triangle(c, name, x, diagonal)


op("tril")(_triangle("tril"))


op("triu")(_triangle("triu"))


@op("select_scatter")
def select_scatter(c: LoweringContext, meta: Meta, x: Tensor, source: Tensor, dim: int, at: Any) -> Tensor:
    """x with one slice replaced."""
    d = dim % x.rank
    position = select_position(c, at, x.shape[d])

    def element(i: Index) -> E:
        inside = c.arena.compare(i[d], "==", position)
        return c.arena.guard(inside, c.to(source.at([*i[:d], *i[d + 1 :]]), x.dtype), x.at(i), before=True)

    return c.tensor(x.dtype, x.shape, element)


@op("slice_scatter")
def slice_scatter(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Tensor:
    """x with x[start:end:step] replaced."""
    d = dim % x.rank
    first = slice_start(c, start, x.shape[d])
    count = source.shape[d]
    if first == ZERO and count == x.shape[d] and step == 1:
        return c.cast(source, x.dtype)

    def element(i: Index) -> E:
        offset = i[d] - first
        tests = [c.arena.compare(i[d], ">=", first), c.arena.compare(offset, "<", (count - 1) * step + 1)]
        if step != 1:
            tests.append(c.arena.compare(offset % step, "==", ZERO))
        index = [offset // step if j == d else k for j, k in enumerate(i)]
        return c.arena.guard(c.arena.both(*tests), c.to(source.at(index), x.dtype), x.at(i), before=True)

    return c.tensor(x.dtype, x.shape, element)


@op("glu")
def glu(c: LoweringContext, meta: Meta, x: Tensor, dim: int = -1) -> Tensor:
    """First half times sigmoid of the second (Dauphin et al. 2017)."""
    d = dim % x.rank
    shape = c.shape(meta)

    def at(i: Index) -> E:
        second = x.at([k + shape[d] if j == d else k for j, k in enumerate(i)])
        return c.arena.binary("*", x.at(i), c.arena.call("sigmoid", second))

    return c.tensor(x.dtype, shape, at)


@op("pixel_shuffle")
def pixel_shuffle(c: LoweringContext, meta: Meta, x: Tensor, factor: int) -> Tensor:
    """Channels to space (Shi et al. 2016)."""
    r = ix(factor)
    return remap(
        c, x, c.shape(meta), lambda i: [*i[:-3], (i[-3] * r + i[-2] % r) * r + i[-1] % r, i[-2] // r, i[-1] // r]
    )


@op("channel_shuffle")
def channel_shuffle(c: LoweringContext, meta: Meta, x: Tensor, groups: int) -> Tensor:
    """Channels interleaved across groups (Zhang et al. 2018)."""
    g, per = ix(groups), x.shape[1] // ix(groups)
    return remap(c, x, x.shape, lambda i: [i[0], (i[1] % g) * per + i[1] // g, *i[2:]])


@op("diagonal")
def diagonal(c: LoweringContext, meta: Meta, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as the last one."""
    a, b = dim1 % x.rank, dim2 % x.rank

    def at(i: Index) -> list[Ix]:
        rest = iter(i[:-1])
        row, column = i[-1] + max(-offset, 0), i[-1] + max(offset, 0)
        return [row if k == a else column if k == b else next(rest) for k in range(x.rank)]

    return remap(c, x, c.shape(meta), at)
