"""Norms: over trailing dimensions, groups, instances and batches; and lengths of vectors and matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.index import ZERO, ix
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.reduce import INFINITY, Math, finish, vector_norm
from hipwright.engine.lower.row_order import in_row_order
from hipwright.engine.lower.table import dims_of, op
from hipwright.engine.lower.values import LoweredItem, NotLowered, Tensor
from hipwright.engine.lower.views import remap

MANY_GROUPS = 256
"""Groups of all images from which neighbouring threads that take neighbouring groups of channels-last images occupy a
device (layout/reductions.py). Fewer are read from a copy in their order. Not measured between.
"""


def affine(
    c: LoweringContext, m: Math, x: Tensor, weight: Tensor | None, bias: Tensor | None, dim: int | None
) -> Tensor:
    """x * weight + bias: along the channel dimension `dim`, or the trailing dimensions for None."""
    for name, parameter in (("*", weight), ("+", bias)):
        if parameter is not None:
            p = parameter
            if dim is not None:
                p = remap(c, parameter, [ix(1) if k != dim else s for k, s in enumerate(x.shape)], lambda i: [i[dim]])
            x = m.fn(name, x, m.of(p))
    return x


def normalise(c: LoweringContext, m: Math, x: Tensor, dims: Sequence[int], eps: float, *, once: bool = False) -> Tensor:
    """(x - mean) / sqrt(var + eps) over dims (biased variance).

    once: another kernel than the statistics' may normalise, which reads the scale in place of the squares and does not
    compute it once more for each element.
    """
    centred, squares, _ = m.moments(x, dims)
    rstd = m.fn("rsqrt", m.fn("+", m.fn("/", squares, m.count(x, dims)), eps))
    if once:
        rstd = c.keep(LoweredItem(c.unique(f"{c.origin}_rstd"), "pw", rstd.dtype, rstd.shape, rstd.at, node=c.origin))
    return m.fn("*", centred, rstd)


@op("layer_norm")
def layer_norm(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    shape: Sequence[Any],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *rest: Any,
) -> Tensor:
    """Ba, Kiros & Hinton 2016."""
    m = Math(c, meta.dtype)
    dims = range(x.rank - len(shape), x.rank)
    y = normalise(c, m, m.of(in_row_order(c, x, dims)), dims, eps)
    return finish(c, meta, affine(c, m, y, weight, bias, None))


@op("rms_norm")
def rms_norm(
    c: LoweringContext, meta: Meta, x: Tensor, shape: Sequence[Any], weight: Any = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean x^2 + eps) (Zhang & Sennrich 2019); eps None is that of the type it is computed in."""
    m = Math(c, meta.dtype)
    value = eps if eps is not None else 2.0 ** (-52 if x.dtype == "float64" else -23)
    dims = range(x.rank - len(shape), x.rank)
    x = in_row_order(c, x, dims)
    square = m.mean(m.fn("square", m.of(x)), dims, "squares")
    y = m.fn("*", m.of(x), m.fn("rsqrt", m.fn("+", square, value)))
    return finish(c, meta, affine(c, m, y, weight, None, None))


@op("group_norm")
def group_norm(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *rest: Any,
) -> Tensor:
    """Wu & He 2018."""
    m = Math(c, meta.dtype)
    per = x.shape[1] // ix(groups)
    grouped = [x.shape[0], ix(groups), per, *x.shape[2:]]
    xg, dims = remap(c, x, grouped, lambda i: [i[0], i[1] * per + i[2], *i[3:]]), range(2, len(grouped))
    if c.numel_hint(grouped[:2]) < MANY_GROUPS:
        xg = in_row_order(c, xg, dims)
    y = normalise(c, m, m.of(xg), dims, eps, once=True)
    flat = remap(c, y, x.shape, lambda i: [i[0], i[1] // per, i[1] % per, *i[2:]])
    return finish(c, meta, affine(c, m, flat, weight, bias, 1))


@op("instance_norm")
def instance_norm(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    use_input: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Tensor:
    """Ulyanov et al. 2016."""
    if not use_input:
        return _given_statistics(c, meta, x, weight, bias, mean, var, eps)
    if mean is not None:
        raise NotLowered("it updates running statistics")
    m = Math(c, meta.dtype)
    return finish(c, meta, affine(c, m, normalise(c, m, m.of(x), range(2, x.rank), eps), weight, bias, 1))


def _channel(c: LoweringContext, x: Tensor, value: Tensor) -> Tensor:
    return remap(c, value, [ix(1) if k != 1 else s for k, s in enumerate(x.shape)], lambda i: [i[1]])


def _given_statistics(
    c: LoweringContext, meta: Meta, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float
) -> Tensor:
    m = Math(c, meta.dtype)
    centred = m.fn("-", m.of(x), m.of(_channel(c, x, mean)))
    y = m.fn("*", centred, m.fn("rsqrt", m.fn("+", m.of(_channel(c, x, var)), eps)))
    return finish(c, meta, affine(c, m, y, weight, bias, 1))


@op("_native_batch_norm_legit_no_training")
def batch_norm_eval(
    c: LoweringContext,
    metas: Sequence[Meta],
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Ioffe & Szegedy 2015 with the running statistics; those of the batch are empty."""
    y = _given_statistics(c, metas[0], x, weight, bias, mean, var, eps)
    zero = c.arena.const(0.0, "float")
    return y, *(c.tensor(one.dtype, c.shape(one), lambda _: zero) if one else None for one in metas[1:])


@op("_native_batch_norm_legit_functional", "_native_batch_norm_legit.no_stats")
def batch_norm_train(
    c: LoweringContext, metas: Sequence[Meta], x: Tensor, weight: Any, bias: Any, *rest: Any
) -> tuple[Any, ...]:
    """Ioffe & Szegedy 2015 with the batch's own statistics; the running ones are outputs."""
    *running, train, momentum, eps = rest
    if not train:
        if not running or any(one is None or ZERO not in c.shape(one) for one in metas[1:3]):
            raise NotLowered("evaluation mode in the training operator")
        mean, var = running
        y, *saved = batch_norm_eval(c, metas[:3], x, weight, bias, mean, var, momentum, eps)
        return y, *saved, c.cast(mean, metas[3].dtype), c.cast(var, metas[4].dtype)
    m, dims = Math(c, metas[0].dtype), [0, *range(2, x.rank)]
    xf = m.of(x)
    centred, squares, mean = m.moments(xf, dims)
    rstd = m.fn("rsqrt", m.fn("+", m.fn("/", squares, m.count(x, dims)), eps))
    if x.rank == 2:  # columns, which another kernel than the statistics' may normalise: not once more for each element
        rstd = c.realise(rstd, f"{c.origin}_rstd")
    y = finish(c, metas[0], affine(c, m, m.fn("*", centred, rstd), weight, bias, 1))
    others: list[Any] = [c.squeeze(mean, dims), c.squeeze(rstd, dims)]
    if running:
        unbiased = m.fn("/", squares, m.count(x, dims, 1))
        for old, new in zip(running, (mean, unbiased), strict=True):
            kept = m.fn("*", m.of(old), 1 - momentum)
            others.append(c.cast(m.fn("+", kept, m.fn("*", c.squeeze(new, dims), momentum)), old.dtype))
    return y, *others


@op("_batch_norm_with_update_functional")
def batch_norm_with_update(
    c: LoweringContext,
    metas: Sequence[Meta],
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """Ioffe & Szegedy 2015 in training; the reserve between the batch's statistics and the running ones is empty."""
    y, *found = batch_norm_train(c, metas, x, weight, bias, mean, var, True, momentum, eps)
    wide = [c.cast(one, meta.dtype) for one, meta in zip(found, (*metas[1:3], *metas[4:]), strict=True)]
    return y, *wide[:2], c.tensor(metas[3].dtype, c.shape(metas[3]), lambda _: c.arena.const(0, "int")), *wide[2:]


@op("linalg_norm", "linalg_norm.ord_str")
def linalg_norm(
    c: LoweringContext, meta: Meta, x: Tensor, order: Any = None, dims: Any = None, keep: bool = False, **kw: Any
) -> Tensor:
    """The norm of vectors or, where an order is given and there are two dimensions, of matrices."""
    axes = dims_of(dims, x.rank)
    if order is None or len(axes) < 2:
        return vector_norm(c, meta, x, order, axes, keep)
    return matrix_norm(c, meta, x, order, axes, keep)


@op("linalg_matrix_norm", "linalg_matrix_norm.str_ord")
def matrix_norm(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    order: Any = "fro",
    dims: Sequence[int] = (-2, -1),
    keep: bool = False,
    **kw: Any,
) -> Tensor:
    """Of matrices: the Frobenius norm; of order 1 the greatest sum of a column's magnitudes, of order infinity that of
    a row's, and the least ones for -1 and -infinity. The other orders need singular values.
    """
    axes = dims_of(dims, x.rank)
    if order == "fro":
        return vector_norm(c, meta, x, 2, axes, keep)
    if isinstance(order, str) or abs(order) not in (1, INFINITY):
        raise NotLowered("a norm of singular values")
    if ZERO in (x.shape[d] for d in axes):
        raise NotLowered("the norm of a matrix without elements")
    m, (down, across) = Math(c, meta.dtype), axes if abs(order) == 1 else axes[::-1]
    sums = m.sum(m.fn("absolute", m.of(x)), [down])
    out = c.reduce("max" if order > 0 else "min", sums, [across], keep=True, dtype=m.dtype)
    return c.cast(out if keep else c.squeeze(out, axes), meta.dtype)
