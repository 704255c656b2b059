"""Views: functions from an index of the result to an index of the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.index import ONE, ZERO, Ix, ix
from hipwright.engine.ir.shapes import reindex
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import as_int, dims_of, op
from hipwright.engine.lower.values import Index, NotLowered, Tensor


def remap(c: LoweringContext, x: Tensor, shape: Sequence[Ix], fn: Callable[[Index], Sequence[Ix]]) -> Tensor:
    """A view: the element at i is x's element at fn(i)."""
    return c.tensor(x.dtype, shape, lambda i: x.at(list(fn(i))))


@op("view", "reshape", "_unsafe_view", "flatten.using_ints", "unflatten.int", "view_as", "reshape_as", "view.dtype")
def view(c: LoweringContext, meta: Meta, x: Tensor, *args: Any) -> Tensor:
    """The same elements in row-major order under another shape."""
    if meta.dtype != x.dtype:
        raise NotLowered("it reinterprets bits")
    shape = c.shape(meta)
    return remap(c, x, shape, lambda i: reindex(shape, x.shape, i))


@op("unsqueeze")
def unsqueeze(c: LoweringContext, meta: Meta, x: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1."""
    d = dim % (x.rank + 1)
    return remap(c, x, [*x.shape[:d], ONE, *x.shape[d:]], lambda i: [*i[:d], *i[d + 1 :]])


@op("squeeze.dim", "squeeze.dims", "squeeze")
def squeeze(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None) -> Tensor:
    """Without dimensions of size 1."""
    axes = [] if dims in ([], ()) else dims_of(dims, x.rank)
    return c.squeeze(x, [d for d in axes if x.shape[d] == ONE])


@op(
    "permute",
    "transpose.int",
    "t",
    "numpy_T",
    "swapaxes",
    "swapdims",
)
def permute(c: LoweringContext, meta: Meta, x: Tensor, *args: Any) -> Tensor:
    """Dimensions in another order."""
    order = permutation(x.rank, args)
    inverse = [order.index(k) for k in range(x.rank)]
    return remap(c, x, [x.shape[k] for k in order], lambda i: [i[k] for k in inverse])


@op("mT", "adjoint")
def matrix_transpose(c: LoweringContext, meta: Meta, x: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    return permute(c, meta, x, -2, -1)


@op("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")
def movedim(c: LoweringContext, meta: Meta, x: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places; those that are not named keep their order."""
    if not x.rank:
        return x
    taken, placed = ([d] if isinstance(d, int) else list(d) for d in (source, destination))
    moved = dict(sorted((b % x.rank, a % x.rank) for a, b in zip(taken, placed, strict=True)))
    order = [d for d in range(x.rank) if d not in moved.values()]
    for place, dim in moved.items():
        order.insert(place, dim)
    return permute(c, meta, x, order)


def permutation(rank: int, args: Sequence[Any]) -> list[int]:
    """The order of dimensions for the arguments of permute, transpose or t."""
    if not args or not rank:  # a scalar takes dimensions 0 and -1, as if it had one
        return list(range(rank))[::-1]
    if len(args) == 1:
        return [as_int(d) % rank for d in args[0]]
    order = list(range(rank))
    a, b = (as_int(d) % rank for d in args)
    order[a], order[b] = order[b], order[a]
    return order


@op("expand", "expand_as", "broadcast_to")
def expand(c: LoweringContext, meta: Meta, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Size-1 dimensions repeated."""
    return remap(c, x, c.shape(meta), lambda i: c.broadcast(x, i))


@op("broadcast_tensors")
def broadcast_tensors(c: LoweringContext, metas: Sequence[Meta], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Every tensor expanded to the common shape."""
    return tuple(expand(c, meta, t) for meta, t in zip(metas, tensors, strict=True))


@op("repeat", "tile")
def repeat(c: LoweringContext, meta: Meta, x: Tensor, times: Any) -> Tensor:
    """The tensor laid out several times along each dimension."""
    shape = c.shape(meta)
    extra = len(shape) - x.rank
    return remap(
        c,
        x,
        shape,
        lambda i: [k % s if s != n else k for k, s, n in zip(i[extra:], x.shape, shape[extra:], strict=True)],
    )


@op("repeat_interleave.self_int")
def repeat_interleave(
    c: LoweringContext, meta: Meta, x: Tensor, times: Any, dim: int | None = None, **kw: Any
) -> Tensor:
    """Each element several times in a row."""
    if dim is None:
        raise NotLowered("it flattens first")
    d, n = dim % x.rank, ix(as_int(times))
    return remap(c, x, c.shape(meta), lambda i: [k // n if j == d else k for j, k in enumerate(i)])


@op("select.int")
def select(c: LoweringContext, meta: Meta, x: Tensor, dim: int, at: Any) -> Tensor:
    """One slice, without its dimension."""
    d = dim % x.rank
    position = select_position(c, at, x.shape[d])
    return remap(c, x, c.shape(meta), lambda i: [*i[:d], position, *i[d:]])


def select_position(c: LoweringContext, at: Any, size: Ix) -> Ix:
    """The index that `select` takes, counted from the front."""
    if isinstance(at, Ix):
        return size + at if c.captured(at) < 0 else at  # the capture fixes the sign
    return ix(at) if at >= 0 else size + at


@op("slice.Tensor", "narrow")
def slice_(
    c: LoweringContext, meta: Meta, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """x[start:end:step] along one dimension."""
    d = dim % x.rank
    shape = c.shape(meta)
    first = slice_start(c, start, x.shape[d])
    return remap(c, x, shape, lambda i: [first + k * step if j == d else k for j, k in enumerate(i)])


@op("unfold")
def unfold(c: LoweringContext, meta: Meta, x: Tensor, dim: int, size: Any, step: Any) -> Tensor:
    """Windows of `size` elements along a dimension, each `step` behind the one before, as a last dimension."""
    if not x.rank:
        return remap(c, x, c.shape(meta), lambda _: [])
    d = dim % x.rank
    return remap(c, x, c.shape(meta), lambda i: [i[d] * step + i[-1] if k == d else i[k] for k in range(x.rank)])


def slice_start(c: LoweringContext, start: Any, size: Ix) -> Ix:
    """A slice's start counted from the front."""
    if start is None:
        return ZERO
    if isinstance(start, Ix):  # the capture fixes the sign
        if c.captured(start) >= 0:
            return start
        return size + start if c.captured(size + start) >= 0 else ZERO
    if start >= 0:
        return ix(min(start, size.value) if size.value is not None else start)
    if size.value is not None:
        return ix(max(size.value + start, 0))
    first: Ix = size + start
    return first


def pieces(c: LoweringContext, name: str, metas: Sequence[Meta], x: Tensor, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """split, chunk and unbind: several views of one tensor."""
    dim = (args[0] if args else 0) if name == "unbind" else (args[1] if len(args) > 1 else 0)
    d = as_int(dim) % x.rank
    out, start = [], ZERO
    for number, meta in enumerate(metas):
        shape = c.shape(meta)
        if name == "unbind":
            out.append(_slice_at(c, x, shape, d, ix(number)))
        else:
            out.append(_shifted(c, x, shape, d, start))
            start = start + shape[d]
    return tuple(out)


def _slice_at(c: LoweringContext, x: Tensor, shape: Sequence[Ix], d: int, at: Ix) -> Tensor:
    return remap(c, x, shape, lambda i: [*i[:d], at, *i[d:]])


def _shifted(c: LoweringContext, x: Tensor, shape: Sequence[Ix], d: int, start: Ix) -> Tensor:
    return remap(c, x, shape, lambda i: [k + start if j == d else k for j, k in enumerate(i)])


def _pieces(name: str) -> Callable[..., tuple[Tensor, ...]]:
    return lambda c, metas, x, *args, **kw: pieces(c, name, metas, x, [*args, *kw.values()])


op("split.Tensor", "split_with_sizes", "split.sizes", "unsafe_split.Tensor", "tensor_split.sections")(_pieces("split"))
op("chunk")(_pieces("chunk"))
op("unbind.int")(_pieces("unbind"))
