"""Losses: a value per element or row, then a mean or sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, E
from hipwright.engine.ir.index import Ix, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.indexing import position
from hipwright.engine.lower.reduce import Math, differing, log_softmax, vector_norm
from hipwright.engine.lower.table import op
from hipwright.engine.lower.values import Index, NotLowered, Tensor

NONE, MEAN, SUM = 0, 1, 2


def total(c: LoweringContext, meta: Meta, value: Tensor, reduction: int, count: Any = None) -> Tensor:
    """The loss reduced as asked; count replaces the number of elements."""
    if reduction == NONE:
        return c.cast(value, meta.dtype)
    m = Math(c, meta.dtype)
    dims = list(range(value.rank))
    out = m.sum(value, dims) if value.rank else value
    if reduction == MEAN:
        out = m.fn("/", out, m.count(value, dims) if count is None else count)
    return c.cast(c.squeeze(out, dims), meta.dtype)


def _elementwise(function: str, *, numbers: bool = False) -> Callable[..., Tensor]:
    def handler(
        c: LoweringContext, meta: Meta, x: Tensor, y: Tensor, reduction: int = MEAN, parameter: float = 1.0
    ) -> Tensor:
        differing(x, y)
        m = Math(c, meta.dtype)
        extra = [parameter] if numbers else []
        return total(c, meta, m.fn(function, m.of(x), m.of(y), *extra), reduction)

    return handler


op("mse_loss")(_elementwise("squared_error"))
op("l1_loss")(_elementwise("absolute_error"))
op("smooth_l1_loss")(_elementwise("smooth_l1", numbers=True))
op("huber_loss")(_elementwise("huber", numbers=True))


@op("binary_cross_entropy")
def binary_cross_entropy(
    c: LoweringContext, meta: Meta, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """-(y log x + (1 - y) log(1 - x)), logs clamped at -100."""
    m = Math(c, meta.dtype)
    loss = m.fn("binary_entropy", m.of(x), m.of(y))
    return total(c, meta, m.fn("*", loss, m.of(weight)) if weight is not None else loss, reduction)


@op("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    positive: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """The same on logits, in the form that does not overflow."""
    m = Math(c, meta.dtype)
    if positive is None:
        loss = m.fn("logit_entropy", m.of(x), m.of(y), 1.0)
    else:
        loss = m.fn("logit_entropy", m.of(x), m.of(y), m.of(positive))
    return total(c, meta, m.fn("*", loss, m.of(weight)) if weight is not None else loss, reduction)


@op("kl_div")
def kl_div(
    c: LoweringContext, meta: Meta, x: Tensor, y: Tensor, reduction: int = MEAN, log_target: bool = False
) -> Tensor:
    """y (log y - x), 0 where y is 0; `batchmean` is a division after it."""
    m = Math(c, meta.dtype)
    return total(c, meta, m.fn("kl_log" if log_target else "kl", m.of(x), m.of(y)), reduction)


@op("soft_margin_loss")
def soft_margin_loss(c: LoweringContext, meta: Meta, x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """log(1 + exp(-y x))."""
    m = Math(c, meta.dtype)
    return total(c, meta, m.fn("log1p", m.fn("exp", m.fn("*", m.fn("*", m.of(x), m.of(y)), -1.0))), reduction)


@op("hinge_embedding_loss")
def hinge_embedding_loss(
    c: LoweringContext, meta: Meta, x: Tensor, y: Tensor, margin: float = 1.0, reduction: int = MEAN
) -> Tensor:
    """x where y = 1, max(0, margin - x) where y = -1."""
    m = Math(c, meta.dtype)
    return total(c, meta, m.fn("hinge_embedding", m.of(x), m.of(y), margin), reduction)


@op("margin_ranking_loss")
def margin_ranking_loss(
    c: LoweringContext, meta: Meta, a: Tensor, b: Tensor, y: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    """max(0, -y (a - b) + margin)."""
    differing(a, b)
    m = Math(c, meta.dtype)
    signed = m.fn("*", m.fn("*", m.of(y), -1.0), m.fn("-", m.of(a), m.of(b)))
    return total(c, meta, m.fn("nan_max", m.fn("+", signed, margin), 0.0), reduction)


@op("triplet_margin_loss")
def triplet_margin_loss(
    c: LoweringContext,
    meta: Meta,
    a: Tensor,
    p: Tensor,
    n: Tensor,
    margin: float = 1.0,
    power: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = MEAN,
) -> Tensor:
    """max(0, |a - p| - |a - n| + margin) (Schroff et al. 2015)."""
    differing(a, p, n)
    m = Math(c, meta.dtype)

    def distance(x: Tensor, y: Tensor) -> Tensor:
        inner = Meta(dtype=m.dtype, shape=())
        return vector_norm(c, inner, m.fn("+", m.fn("-", m.of(x), m.of(y)), eps), power, [-1])

    far = distance(a, n)
    if swap:
        far = m.fn("nan_min", far, distance(p, n))
    gap = m.fn("+", m.fn("-", distance(a, p), far), margin)
    return total(c, meta, c.realise(m.fn("nan_max", gap, 0.0), f"{c.origin}_rows"), reduction)


@op("cosine_embedding_loss")
def cosine_embedding_loss(
    c: LoweringContext, meta: Meta, a: Tensor, b: Tensor, y: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    """1 - cos where y = 1, max(0, cos - margin) where y = -1."""
    m = Math(c, meta.dtype)
    x, z, dims = m.of(a), m.of(b), [a.rank - 1]
    dot = m.sum(m.fn("*", x, z), dims, "dot")
    xx = m.fn("+", m.sum(m.fn("square", x), dims, "aa"), 1e-12)
    zz = m.fn("+", m.sum(m.fn("square", z), dims, "bb"), 1e-12)
    cosine = c.squeeze(m.fn("/", dot, m.fn("sqrt", m.fn("*", xx, zz))), dims)
    rows = c.realise(m.fn("cosine_embedding", cosine, m.of(y), margin), f"{c.origin}_rows")
    return total(c, meta, rows, reduction)


# ---------------------------------------------------------------- classification


@op("nll_loss_nd", "nll_loss", "nll_loss2d")
def nll_loss(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore: int = -100,
) -> Tensor:
    """-x[target], weighted per class."""
    return _picked(c, meta, x, target, weight, reduction, ignore)


def _picked(
    c: LoweringContext, meta: Meta, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: Any
) -> Tensor:
    m = Math(c, meta.dtype)
    axis = 0 if x.rank == 1 else 1
    classes = x.shape[axis]
    shape = [s for k, s in enumerate(x.shape) if k != axis]

    def row(i: Index, value: Callable[[Ix], E]) -> E:
        label = c.arena.cast(target.at(i), "long")
        kept = c.arena.binary("!=", label, c.arena.const(int(ignore), "long"), "bool")
        chosen = position(c, target, i, classes, wrap=False)
        return c.arena.guard(kept, value(chosen), c.arena.const(0, m.ctype))

    def scale(k: Ix) -> E:
        return c.arena.const(1, m.ctype) if weight is None else c.arena.cast(weight.at([k]), m.ctype)

    def loss(i: Index) -> E:
        def value(k: Ix) -> E:
            picked = c.arena.cast(x.at([*i[:axis], k, *i[axis:]]), m.ctype)
            negated = c.arena.unary("-", picked)
            return negated if weight is None else c.arena.binary("*", negated, scale(k))

        return row(i, value)

    rows = c.tensor(m.dtype, shape, loss)
    if reduction != NONE and rows.rank:
        rows = c.realise(rows, f"{c.origin}_rows")
    count = None
    if reduction == MEAN:
        kept = c.tensor(m.dtype, shape, lambda i: row(i, scale))
        count = m.sum(kept, list(range(kept.rank)), "count") if kept.rank else kept
    return total(c, meta, rows, reduction, count)


@op("cross_entropy_loss")
def cross_entropy(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore: int = -100,
    smoothing: float = 0.0,
) -> Tensor:
    """nll(log_softmax(x)); also with class probabilities."""
    m = Math(c, meta.dtype)
    axis = 0 if x.rank == 1 else 1
    inner = Meta(dtype=m.dtype, shape=())
    logp = log_softmax(c, inner, m.of(x), axis)
    if target.dtype in FLOATING:
        return _probabilities(c, meta, m, logp, target, weight, reduction, smoothing, axis)
    if not smoothing:
        return _picked(c, meta, logp, target, weight, reduction, ignore)
    if weight is not None or int(ignore) >= 0:
        raise NotLowered("label smoothing with class weights")
    classes = x.shape[axis]
    smooth = c.squeeze(m.sum(logp, [axis], "smooth"), [axis])

    def row(i: Index) -> E:
        label = c.arena.cast(target.at(i), "long")
        kept = c.arena.binary("!=", label, c.arena.const(int(ignore), "long"), "bool")
        k = position(c, target, i, classes, wrap=False)
        picked = c.arena.binary("*", c.arena.const(-(1 - smoothing), m.ctype), logp.at([*i[:axis], k, *i[axis:]]))
        share = c.arena.binary("/", smooth.at(i), c.arena.cast(c.arena.index(classes), m.ctype))
        rest = c.arena.binary("*", c.arena.const(-smoothing, m.ctype), share)
        return c.arena.guard(kept, c.arena.binary("+", picked, rest), c.arena.const(0, m.ctype))

    rows = c.tensor(m.dtype, smooth.shape, row)
    if reduction == NONE:
        return c.cast(rows, meta.dtype)
    count = c.map(
        lambda t: c.arena.cast(c.arena.binary("!=", t, c.arena.const(int(ignore), "long"), "bool"), m.ctype),
        target,
        dtype=m.dtype,
        shape=target.shape,
        ctype="long",
    )
    counted = m.sum(count, list(range(count.rank)), "count") if count.rank else count
    return total(c, meta, c.realise(rows, f"{c.origin}_rows") if rows.rank else rows, reduction, counted)


def _probabilities(
    c: LoweringContext,
    meta: Meta,
    m: Math,
    logp: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    smoothing: float,
    axis: int,
) -> Tensor:
    if weight is not None:
        raise NotLowered("class weights with class probabilities")
    wanted = m.of(target)
    if smoothing:
        share = m.fn("*", _size(c, logp.shape[axis], m), 1 / smoothing)
        wanted = m.fn("+", m.fn("*", wanted, 1 - smoothing), m.fn("reciprocal", share))
    rows = c.squeeze(m.fn("*", m.sum(m.fn("*", logp, wanted), [axis], "dot"), -1.0), [axis])
    if reduction == NONE:
        return c.cast(rows, meta.dtype)
    batch = product([s for k, s in enumerate(logp.shape) if k != axis])
    kept = c.realise(rows, f"{c.origin}_rows") if rows.rank else rows
    return total(c, meta, kept, reduction, _size(c, batch, m))


def _size(c: LoweringContext, n: Ix, m: Math) -> Tensor:
    return c.tensor(m.dtype, [], lambda i: c.arena.cast(c.arena.index(n), COMPUTE[m.dtype]))
