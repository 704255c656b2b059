"""Operators whose index is data: embedding, gather, advanced indexing, one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, E
from hipwright.engine.ir.index import Ind, Ix, ix, product
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import as_int, op
from hipwright.engine.lower.values import Index, NotLowered, Tensor
from hipwright.engine.lower.views import remap


def position(c: LoweringContext, index: Tensor, at: Index, size: Ix, *, wrap: bool = True) -> Ix:
    """The value of an index tensor as an index; a negative one counts from the end."""
    if index.dtype == "bool":
        raise NotLowered("a boolean mask makes a result of unknown size")
    value = c.arena.cast(index.at(at), "long")
    if value.op == "index" and isinstance(value.attr, Ix):
        return value.attr
    if value.op == "const":
        return ix(int(value.attr)) if value.attr >= 0 else size + int(value.attr)
    if wrap:
        value = c.arena.call("wrap_index", value, c.arena.index(size), ctype="long")
    return ix(Ind(value))


@op("embedding")
def embedding(c: LoweringContext, meta: Meta, weight: Tensor, index: Tensor, *rest: Any) -> Tensor:
    """Rows of a table."""
    return c.tensor(
        weight.dtype,
        c.shape(meta),
        lambda i: weight.at([position(c, index, i[:-1], weight.shape[0], wrap=False), i[-1]]),
    )


@op("index_select")
def index_select(c: LoweringContext, meta: Meta, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices picked along a dimension; of a scalar, the scalar."""
    if not x.rank:
        return x
    d = dim % x.rank

    def at(i: Index) -> E:
        chosen = position(c, index, [i[d]] if index.rank else [], x.shape[d], wrap=False)
        return x.at([*i[:d], chosen, *i[d + 1 :]])

    return c.tensor(x.dtype, c.shape(meta), at)


@op("take_along_dim")
def take_along_dim(c: LoweringContext, meta: Meta, x: Tensor, index: Tensor, dim: int | None = None) -> Tensor:
    """`gather` of what is broadcast together; without a dimension, of all elements in order."""
    if dim is None:
        x, index = (remap(c, v, [product(v.shape)], partial(_unflattened, v.shape)) for v in (x, index))
    return gather(c, meta, x, dim or 0, index)


def _unflattened(shape: list[Ix], index: Index) -> list[Ix]:
    return unflatten(shape, index[0])


@op("gather")
def gather(c: LoweringContext, meta: Meta, x: Tensor, dim: int, index: Tensor, **kw: Any) -> Tensor:
    """x[..., index[i], ...] along one dimension."""
    if not x.rank:
        return c.tensor(x.dtype, c.shape(meta), lambda i: x.at([]))
    d = dim % x.rank

    def at(i: Index) -> E:
        chosen = position(c, index, c.broadcast(index, i), x.shape[d])
        if x.rank == 1:  # of a vector a scalar index picks a scalar
            return x.at([chosen])
        return x.at([chosen if k == d else j for k, j in enumerate(c.broadcast(x, i))])

    return c.tensor(x.dtype, c.shape(meta), at)


@op("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(c: LoweringContext, meta: Meta, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Advanced indexing: the index tensors broadcast together; their dimensions go where NumPy puts them."""
    listed = [*indices, *([None] * (x.rank - len(indices)))]
    used = [k for k, t in enumerate(listed) if t is not None]
    for k in used:
        tensor = listed[k]
        if tensor is not None and tensor.dtype == "bool":
            raise NotLowered("a boolean mask makes a result of unknown size")
    width = max(t.rank for t in listed if t is not None)
    adjacent = used == list(range(used[0], used[-1] + 1))
    start = used[0] if adjacent else 0

    def at(i: Index) -> E:
        shared = list(i)[start : start + width]
        rest = iter([*i[:start], *i[start + width :]])
        out = []
        for k, tensor in enumerate(listed):
            out.append(next(rest) if tensor is None else position(c, tensor, c.broadcast(tensor, shared), x.shape[k]))
        return x.at(out)

    return c.tensor(x.dtype, c.shape(meta), at)


@op("one_hot")
def one_hot(c: LoweringContext, meta: Meta, x: Tensor, classes: int = -1) -> Tensor:
    """1 where the class matches."""
    if as_int(classes) < 0:
        raise NotLowered("the number of classes depends on the data")

    def at(i: Index) -> E:
        same = c.arena.binary("==", c.arena.cast(x.at(i[:-1]), "long"), c.arena.index(i[-1]), "bool")
        return c.arena.cast(same, COMPUTE[meta.dtype])

    return c.tensor(meta.dtype, c.shape(meta), at)


@op("index_fill.int_Scalar")
def index_fill(c: LoweringContext, meta: Meta, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Chosen slices set to a value: a slice is chosen when any index equals it."""
    d = dim % max(x.rank, 1)
    count = index.shape[0] if index.rank else ix(1)
    k = c.arena.var("k", count)
    size = x.shape[d] if x.rank else ix(1)

    def at(i: Index) -> E:
        place = position(c, index, [ix(k)] if index.rank else [], size)
        same = c.arena.binary("==", c.arena.index(place), c.arena.index(i[d] if x.rank else ix(0)), "bool")
        chosen = c.arena.loop("any", [k], [(ix(0), count)], same)
        return c.arena.select(chosen, c.arena.const(value, COMPUTE[x.dtype]), x.at(i))

    return c.tensor(x.dtype, x.shape, at)
