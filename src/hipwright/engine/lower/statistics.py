"""Norms whose statistics are outputs, as autograd keeps them, and scatters that set one element a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.ir.index import ONE, ZERO, Ix, ix
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.norms import affine
from hipwright.engine.lower.reduce import Math, finish
from hipwright.engine.lower.table import op
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.lower.views import remap


@op("native_layer_norm")
def native_layer_norm(
    c: LoweringContext, metas: Sequence[Meta], x: Tensor, shape: Sequence[Any], weight: Any, bias: Any, eps: float
) -> tuple[Tensor, ...]:
    """Ba, Kiros & Hinton 2016; (y, mean, 1 / standard deviation), the last two with sizes of 1."""
    m = Math(c, metas[0].dtype)
    centred, mean, rstd = _moments(m, m.of(x), range(x.rank - len(shape), x.rank), eps)
    y = finish(c, metas[0], affine(c, m, m.fn("*", centred, rstd), weight, bias, None))
    return y, c.cast(mean, metas[1].dtype), c.cast(rstd, metas[2].dtype)


@op("native_group_norm")
def native_group_norm(
    c: LoweringContext,
    metas: Sequence[Meta],
    x: Tensor,
    weight: Any,
    bias: Any,
    n: Any,
    channels: Any,
    hw: Any,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...]:
    """Wu & He 2018; (y, mean, 1 / standard deviation), the last two of shape (n, groups)."""
    m, per = Math(c, metas[0].dtype), x.shape[1] // ix(groups)
    grouped = [x.shape[0], ix(groups), per, *x.shape[2:]]
    dims = range(2, len(grouped))
    xg = remap(c, m.of(x), grouped, lambda i: [i[0], i[1] * per + i[2], *i[3:]])
    centred, mean, rstd = _moments(m, xg, dims, eps)
    y = remap(c, m.fn("*", centred, rstd), x.shape, lambda i: [i[0], i[1] // per, i[1] % per, *i[2:]])
    rows = [c.cast(c.squeeze(v, dims), meta.dtype) for v, meta in ((mean, metas[1]), (rstd, metas[2]))]
    return finish(c, metas[0], affine(c, m, y, weight, bias, 1)), *rows


def _moments(m: Math, x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean, mean, 1 / sqrt(variance + eps))."""
    centred, squares, mean = m.moments(x, dims)
    return centred, mean, m.fn("rsqrt", m.fn("+", m.fn("/", squares, m.count(x, dims)), eps))


@op("scatter.value", "scatter.src")
def scatter(c: LoweringContext, meta: Meta, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """x with one element set along `dim` in every row that the index has: a comparison instead of a write."""
    axis = dim % max(x.rank, 1)
    if x.rank != index.rank or x.rank == 0 or index.shape[axis] != ONE:
        raise NotLowered("it sets several elements along the dimension")
    fewer = [k for k in range(x.rank) if k != axis and index.shape[k].key != x.shape[k].key]
    arena, kind = c.arena, COMPUTE[meta.dtype]

    def at(i: Sequence[Ix]) -> Any:
        row = [ZERO if k == axis else v for k, v in enumerate(i)]
        hit = arena.binary("==", arena.cast(index.at(row), "long"), arena.index(i[axis]), "bool")
        new = arena.cast(value.at(row), kind) if isinstance(value, Tensor) else arena.const(value, kind)
        within = arena.both(*(arena.compare(i[k], "<", index.shape[k]) for k in fewer))
        return arena.guard(within, arena.select(hit, new, x.at(i)), x.at(i), before=True)

    return c.tensor(meta.dtype, x.shape, at)
