"""Reductions, and what is built on them: softmax, distances and scans; norms.py has the norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, SMALL_INTS, E
from hipwright.engine.ir.index import ONE, ZERO, Ix, ix, product
from hipwright.engine.ir.shapes import unflatten
from hipwright.engine.lower.bit_ranks import summed_bits
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.row_order import in_row_order
from hipwright.engine.lower.table import dims_of, op
from hipwright.engine.lower.values import LoweredItem, NotLowered, Tensor
from hipwright.engine.lower.views import remap

INFINITY = float("inf")


class Math:
    """Arithmetic on values of one compute dtype, so that a formula reads like one."""

    def __init__(self, c: LoweringContext, dtype: str) -> None:
        self.c = c
        self.dtype = "float64" if dtype == "float64" else "float32"
        self.ctype = COMPUTE[self.dtype]

    def of(self, x: Tensor) -> Tensor:
        """x in the compute dtype."""
        return self.c.cast(x, self.dtype)

    def fn(self, name: str, *args: Any) -> Tensor:
        """A device function, or an operator such as "+", applied elementwise with broadcasting."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        wide = max(tensors, key=lambda t: t.rank)
        shape = list(wide.shape)
        for t in tensors:
            for k in range(1, t.rank + 1):
                if shape[-k] == ix(1):
                    shape[-k] = t.shape[-k]

        def apply(*operands: E) -> E:
            if name in ("+", "-", "*", "/"):
                a, b = operands
                return self.c.arena.binary(name, a, b)
            return self.c.arena.call(name, *operands)

        return self.c.map(apply, *args, dtype=self.dtype, shape=shape)

    def count(self, x: Tensor, dims: Sequence[int], less: float = 0) -> Any:
        """How many elements a reduction over dims meets, minus `less`, never below 0."""
        n = product([x.shape[d] for d in dims])
        if n.value is not None:
            return max(n.value - less, 0)
        return self.fn("nan_max", self.fn("-", _constant(self.c, n, self.dtype), less), 0.0) if less else n

    def sum(self, x: Tensor, dims: Sequence[int], name: str = "") -> Tensor:
        """Sum, dimensions kept."""
        return self.c.reduce("sum", x, dims, keep=True, dtype=self.dtype, name=self._name(name))

    def max(self, x: Tensor, dims: Sequence[int], name: str = "") -> Tensor:
        """Maximum, dimensions kept."""
        return self.c.reduce("max", x, dims, keep=True, dtype=self.dtype, name=self._name(name))

    def _name(self, name: str) -> str:
        return f"{self.c.origin}_{name}" if name else ""

    def mean(self, x: Tensor, dims: Sequence[int], name: str = "sum") -> Tensor:
        """Mean, dimensions kept."""
        return self.fn("/", self.sum(x, dims, name), self.count(x, dims))

    def moments(self, x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """(x - mean, sum of its squares, mean), the moments from one pass over memory (templates/rows/reducers.py)."""
        mean = self.c.reduce("mean", x, dims, keep=True, dtype=self.dtype, name=self._name("mean"))
        squares = self.c.reduce("squares", x, dims, keep=True, dtype=self.dtype, name=self._name("squares"))
        rest = self.c.reduce("rest", x, dims, keep=True, dtype=self.dtype, name=self._name("rest"))
        return self.fn("-", self.fn("-", x, mean), rest), squares, mean


def _constant(c: LoweringContext, value: Ix, dtype: str) -> Tensor:
    return c.tensor(dtype, [], lambda i: c.arena.cast(c.arena.index(value), COMPUTE[dtype]))


def finish(c: LoweringContext, meta: Meta, value: Tensor) -> Tensor:
    """A computed value in the dtype and shape the graph says."""
    out = c.cast(value, meta.dtype)
    shape = c.shape(meta)
    if len(shape) != out.rank:
        raise NotLowered("an unexpected rank")
    return out


def differing(*values: Tensor) -> None:
    """Raises NotLowered for whole numbers, whose differences torch computes in their own type."""
    if any(v.dtype not in FLOATING for v in values):
        raise NotLowered("differences of whole numbers")


def _float_only(meta: Meta) -> None:
    if meta.dtype not in FLOATING:
        raise NotLowered("not a floating result")


@op("sum", "sum.dim_IntList")
def sum_(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> Tensor:
    """Sum in the output's compute type (int64 exact)."""
    return _plain(c, "sum", meta, x, dims, keep)


@op("prod", "prod.dim_int")
def prod(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> Tensor:
    """Product."""
    return _plain(c, "prod", meta, x, dims, keep)


def _plain(c: LoweringContext, kind: str, meta: Meta, x: Tensor, dims: Any, keep: bool) -> Tensor:
    dtype = "int64" if meta.dtype in SMALL_INTS else meta.dtype  # a row value is not wrapped before it is stored
    return c.cast(c.reduce(kind, c.cast(x, dtype), dims_of(dims, x.rank), keep=keep), meta.dtype)


@op("mean", "mean.dim")
def mean(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> Tensor:
    """Sum over count."""
    _float_only(meta)
    m, axes = Math(c, meta.dtype), dims_of(dims, x.rank)
    out = m.mean(m.of(x), axes)
    return c.cast(out if keep else c.squeeze(out, axes), meta.dtype)


def _extreme(kind: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None, keep: bool = False) -> Tensor:
        return c.cast(c.reduce(kind, x, dims_of(dims, x.rank), keep=keep), meta.dtype)

    return handler


def _extreme_with_index(kind: str) -> Callable[..., tuple[Tensor, ...]]:
    def handler(
        c: LoweringContext, metas: Sequence[Meta], x: Tensor, dim: int, keep: bool = False
    ) -> tuple[Tensor, ...]:
        axes = dims_of(dim, x.rank)
        index = c.reduce(f"arg{kind}", x, axes, keep=keep)
        return c.cast(c.reduce(kind, x, axes, keep=keep), x.dtype), index

    return handler


def _position(kind: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, dim: int | None = None, keep: bool = False) -> Tensor:
        if dim is None and x.rank > 1:
            flat = remap(c, x, [product(x.shape)], lambda i: unflatten(x.shape, i[0]))
            return c.reduce(kind, flat, [0])
        return c.reduce(kind, x, dims_of(dim, x.rank), keep=keep)

    return handler


for _kind in ("max", "min"):
    op(_kind, f"a{_kind}")(_extreme(_kind))
    op(f"{_kind}.dim")(_extreme_with_index(_kind))
    op(f"arg{_kind}")(_position(f"arg{_kind}"))


def _boolean(kind: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None, keep: bool = False) -> Tensor:
        axes = dims_of(dims, x.rank) if dims is None or isinstance(dims, int) or len(dims) else []
        return c.cast(c.reduce(kind, c.cast(x, "bool"), axes, keep=keep), meta.dtype)

    return handler


for _kind in ("any", "all"):
    op(_kind, f"{_kind}.dim", f"{_kind}.dims")(_boolean(_kind))


@op("count_nonzero.dim_IntList", "count_nonzero")
def count_nonzero(c: LoweringContext, meta: Meta, x: Tensor, dims: Any = None) -> Tensor:
    """How many elements are not 0."""
    return c.reduce("sum", c.cast(c.cast(x, "bool"), "int64"), dims_of(dims, x.rank))


def _variance(c: LoweringContext, dtype: str, x: Tensor, dims: Any, correction: Any, keep: bool, root: bool) -> Tensor:
    m, axes = Math(c, dtype), dims_of(dims, x.rank)
    _, squares, _ = m.moments(m.of(x), axes)
    out = m.fn("/", squares, m.count(x, axes, 1 if correction is None else float(correction)))
    out = m.fn("sqrt", out) if root else out
    return c.cast(out if keep else c.squeeze(out, axes), dtype)


def _variance_handler(root: bool) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, *args: Any, **kw: Any) -> Tensor:
        dims, unbiased, keep = None, True, kw.get("keepdim", False)
        rest = list(args)
        if rest and not isinstance(rest[0], bool):
            dims = rest.pop(0)
        if rest:
            unbiased = rest.pop(0)
        if rest:
            keep = rest.pop(0)
        correction = kw.get("correction", int(kw.get("unbiased", unbiased)))
        return _variance(c, meta.dtype, x, dims, correction, keep, root)

    return handler


def _variance_and_mean(root: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    spread = _variance_handler(root)

    def handler(c: LoweringContext, metas: Sequence[Meta], x: Tensor, *args: Any, **kw: Any) -> tuple[Tensor, Tensor]:
        m, dims = Math(c, metas[1].dtype), None if not args or isinstance(args[0], bool) else args[0]
        axes = dims_of(dims, x.rank)
        mean, n = m.moments(m.of(x), axes)[2], m.count(x, axes)  # of the same values as the variance: one state
        if not n or isinstance(n, Ix):  # of no values, NaN: the state's is 0
            mean = m.fn("+", mean, m.fn("/", _constant(c, ZERO, m.dtype), n))
        keep = len(metas[1].shape) == x.rank
        return spread(c, metas[0], x, *args, **kw), c.cast(mean if keep else c.squeeze(mean, axes), metas[1].dtype)

    return handler


op("var_mean", "var_mean.dim", "var_mean.correction")(_variance_and_mean(False))
op("std_mean", "std_mean.dim", "std_mean.correction")(_variance_and_mean(True))
op("var", "var.dim", "var.correction")(_variance_handler(False))
op("std", "std.dim", "std.correction")(_variance_handler(True))


@op(
    "linalg_vector_norm",
    "norm.ScalarOpt_dim",
    "norm.Scalar",
    "frobenius_norm.dim",
    "norm.ScalarOpt_dim_dtype",
)
def vector_norm(
    c: LoweringContext, meta: Meta, x: Tensor, order: Any = 2, dims: Any = None, keep: bool = False, **kw: Any
) -> Tensor:
    """(sum |x|^p)^(1/p), and its limits."""
    m, axes = Math(c, meta.dtype), dims_of(dims, x.rank)
    p = 2.0 if order is None else float(order)
    size = m.fn("absolute", m.of(x))
    if p == 2:
        out = m.fn("sqrt", m.sum(m.fn("square", m.of(x)), axes, "squares"))
    elif p == 1:
        out = m.sum(size, axes)
    elif p in (INFINITY, -INFINITY):
        out = c.reduce("max" if p > 0 else "min", size, axes, keep=True, dtype=m.dtype)
    elif p == 0:
        out = m.sum(c.cast(c.cast(x, "bool"), m.dtype), axes)
    else:
        out = m.fn("pow", m.sum(m.fn("pow", size, p), axes), 1 / p)
    return c.cast(out if keep else c.squeeze(out, axes), meta.dtype)


# ---------------------------------------------------------------- softmax


@op("softmax.int", "_softmax")
def softmax(c: LoweringContext, meta: Meta, x: Tensor, dim: int, *rest: Any, **kw: Any) -> Tensor:
    """exp(x - max) / sum of it; a row of -inf gives NaN, as in PyTorch."""
    m, axes = Math(c, meta.dtype), dims_of(dim, x.rank)
    x = in_row_order(c, x, axes)
    e = m.fn("exp", m.fn("-", m.of(x), m.max(m.of(x), axes)))
    return c.cast(m.fn("*", e, m.fn("reciprocal", m.sum(e, axes))), meta.dtype)  # the sum is at least 1


@op("softmin.int")
def softmin(c: LoweringContext, meta: Meta, x: Tensor, dim: int, *rest: Any, **kw: Any) -> Tensor:
    """softmax(-x)."""
    return softmax(c, meta, Math(c, meta.dtype).fn("*", Math(c, meta.dtype).of(x), -1.0), dim)


@op("log_softmax.int", "_log_softmax")
def log_softmax(c: LoweringContext, meta: Meta, x: Tensor, dim: int, *rest: Any, **kw: Any) -> Tensor:
    """x - max - log(sum exp(x - max))."""
    m, axes = Math(c, meta.dtype), dims_of(dim, x.rank)
    x = in_row_order(c, x, axes)
    shifted = m.fn("-", m.of(x), m.max(m.of(x), axes))
    return c.cast(m.fn("-", shifted, m.fn("log", m.sum(m.fn("exp", shifted), axes))), meta.dtype)


@op("logsumexp")
def logsumexp(c: LoweringContext, meta: Meta, x: Tensor, dims: Any, keep: bool = False) -> Tensor:
    """log(sum exp(x)), shifted by the maximum where that is finite."""
    m, axes = Math(c, meta.dtype), dims_of(dims, x.rank)
    top = m.fn("finite_or_zero", m.max(m.of(x), axes))
    out = m.fn("+", m.fn("log", m.sum(m.fn("exp", m.fn("-", m.of(x), top)), axes)), top)
    return c.cast(out if keep else c.squeeze(out, axes), meta.dtype)


# ---------------------------------------------------------------- distances


@op("cosine_similarity")
def cosine_similarity(c: LoweringContext, meta: Meta, a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """a . b / (max(|a|, eps) max(|b|, eps)), with the norms of what is broadcast along the dimension. It is between -1
    and 1, where acos is defined; of vectors of one element it is exact, as a b and |a| |b| round alike.
    """
    m = Math(c, meta.dtype)
    if a.rank != b.rank:
        raise NotLowered("operands of different rank")
    if not a.rank:
        raise NotLowered("scalars")
    axis = dim % a.rank
    axes, size = [axis], b.shape[axis] if a.shape[axis] == ONE else a.shape[axis]
    x, y = (
        remap(c, v, [*v.shape[:axis], size, *v.shape[axis + 1 :]], partial(c.broadcast, v)) for v in (m.of(a), m.of(b))
    )
    dot = m.sum(m.fn("*", x, y), axes, "dot")
    xx, yy = (m.fn("nan_max", m.fn("sqrt", m.sum(m.fn("square", v), axes, n)), eps) for v, n in ((x, "aa"), (y, "bb")))
    apart = eps * eps < 2.0**-126  # where the product of norms may be 0
    ratio = m.fn("/", m.fn("/", dot, xx), yy) if apart else m.fn("/", dot, m.fn("*", xx, yy))
    cosine = m.fn("nan_min", m.fn("nan_max", ratio, -1.0), 1.0)
    return c.cast(c.squeeze(cosine, axes), meta.dtype)


@op("pairwise_distance")
def pairwise_distance(
    c: LoweringContext, meta: Meta, a: Tensor, b: Tensor, p: float = 2, eps: float = 1e-6, keep: bool = False
) -> Tensor:
    """|a - b + eps|_p over the last dimension."""
    differing(a, b)
    m = Math(c, meta.dtype)
    difference = m.fn("+", m.fn("-", m.of(a), m.of(b)), eps)
    return vector_norm(c, meta, difference, p, [-1], keep)


# ---------------------------------------------------------------- scans


def _scan(kind: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, dim: int, **kw: Any) -> Tensor:
        if not x.rank:
            return c.cast(x, meta.dtype)
        if kind == "sum" and dim % x.rank == x.rank - 1 and (counted := summed_bits(c, x, meta.dtype)) is not None:
            return counted
        value = c.cast(x, meta.dtype)
        item = LoweredItem(
            c.unique(c.origin), "scan", meta.dtype, value.shape, value.at, (dim % x.rank,), kind, c.origin
        )
        return c.keep(item)

    return handler


op("cumsum")(_scan("sum"))
op("cumprod")(_scan("prod"))
