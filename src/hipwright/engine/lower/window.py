"""Pooling, unfolding and interpolation: every output reads a small window of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, E
from hipwright.engine.ir.index import Fn, Ind, Ix, Var, divide, ix, modulo, product
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.conv import plane_position, window_start
from hipwright.engine.lower.reduce import Math, mean
from hipwright.engine.lower.table import as_int, op
from hipwright.engine.lower.values import Index, NotLowered, Tensor

INFINITY = float("inf")
SMALL_WINDOW = 1024


def _spread(value: Any, n: int, default: int | None = None) -> list[int]:
    if value is None or value == []:
        value = default
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return [as_int(v) for v in (listed * n if len(listed) == 1 else listed)]


def _windows(
    c: LoweringContext,
    x: Tensor,
    n: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> Callable[[Index], tuple[list[Var], list[Ix], list[E | None]]]:
    """For an output index: the window's variables, the input index they reach, and the bounds tests needed."""
    variables = [c.arena.var("k", ix(k)) for k in kernel]

    def at(i: Index) -> tuple[list[Var], list[Ix], list[E | None]]:
        index, tests = list(i), []
        for j in range(n):
            d = x.rank - n + j
            index[d] = i[d] * stride[j] + ix(variables[j]) * dilation[j] - padding[j]
            if padding[j] or ceil:
                tests.append(c.arena.compare(index[d], ">=", ix(0)) if padding[j] else None)
                tests.append(c.arena.compare(index[d], "<", x.shape[d]))
        return variables, index, tests

    return at


def _max_pool(n: int, indices: bool) -> Callable[..., Any]:
    def handler(
        c: LoweringContext,
        meta: Any,
        x: Tensor,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil: bool = False,
    ) -> Any:
        k = _spread(kernel, n)
        windows = _windows(
            c, x, n, k, _spread(stride, n) if stride else k, _spread(padding, n), _spread(dilation, n), ceil
        )
        metas = meta if indices else (meta,)
        shape, kind = c.shape(metas[0]), COMPUTE[x.dtype]
        if kind not in ("float", "double"):
            raise NotLowered("pooling of integers")

        def at(i: Index, what: str) -> E:
            variables, index, tests = windows(i)
            element = c.arena.guard(c.arena.both(*tests), x.at(index), c.arena.const(-INFINITY, kind))
            best = c.arena.loop(what, variables, [(ix(0), ix(size)) for size in k], element)
            if what == "max":
                return best
            return _flat_position(
                c, x, n, best, k, _spread(stride, n) if stride else k, _spread(padding, n), _spread(dilation, n), i
            )

        values = c.tensor(x.dtype, shape, lambda i: at(i, "max"))
        if not indices:
            return values
        return values, c.tensor("int64", shape, lambda i: at(i, "argmax"))

    return handler


def _flat_position(
    c: LoweringContext,
    x: Tensor,
    n: int,
    best: E,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    i: Index,
) -> E:
    """The winner's position in the input plane, from its position in the window: of a window without a number above
    -Inf the first place that is not in the padding before the input.
    """
    where = ix(Ind(best))
    index = []
    for j in range(n):
        d = x.rank - n + j
        inner = product([ix(k) for k in kernel[j + 1 :]])
        k = modulo(divide(where, inner), ix(kernel[j])) if n > 1 else where
        place = i[d] * stride[j] + k * dilation[j] - padding[j]
        first = window_start(i[d], stride[j], padding[j], dilation[j])
        index.append(ix(Fn("max", place, first)) if padding[j] else place)
    return c.arena.index(plane_position(x.shape[x.rank - n :], index))


def _avg_pool(n: int) -> Callable[..., Tensor]:
    def handler(
        c: LoweringContext,
        meta: Meta,
        x: Tensor,
        kernel: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil: bool = False,
        include_pad: bool = True,
        divisor: Any = None,
    ) -> Tensor:
        k, p = _spread(kernel, n), _spread(padding, n)
        s = _spread(stride, n) if stride else k
        if ceil and include_pad and divisor is None:
            raise NotLowered("ceil_mode counts padding in a way of its own")
        windows = _windows(c, x, n, k, s, p, [1] * n, ceil)
        kind = COMPUTE[meta.dtype]

        def at(i: Index) -> E:
            variables, index, tests = windows(i)
            element = c.arena.guard(c.arena.both(*tests), c.arena.cast(x.at(index), kind), c.arena.const(0, kind))
            total = c.arena.loop("sum", variables, [(ix(0), ix(size)) for size in k], element)
            count = product([ix(size) for size in k]) if divisor is None else ix(as_int(divisor))
            if not include_pad and divisor is None and any(p):
                count = product(
                    [_overlap(i[x.rank - n + j] * s[j] - p[j], k[j], x.shape[x.rank - n + j]) for j in range(n)]
                )
            return c.arena.binary("/", total, c.arena.cast(c.arena.index(count), kind))

        return c.tensor(meta.dtype, c.shape(meta), at)

    return handler


def _overlap(start: Ix, length: int, size: Ix) -> Ix:
    return ix(Fn("min", start + length, size)) - ix(Fn("max", start, ix(0)))


def _unflatten(where: Ix, sizes: Sequence[Ix]) -> list[Ix]:
    """The indices of a flat position in row-major order."""
    inner = [product(sizes[j + 1 :]) for j in range(len(sizes))]
    return [modulo(divide(where, inner[j]), size) if j else divide(where, inner[0]) for j, size in enumerate(sizes)]


def _adaptive(n: int, kind: str) -> Callable[..., Any]:
    def handler(c: LoweringContext, meta: Any, x: Tensor, size: Any) -> Any:
        first = meta[0] if isinstance(meta, (list, tuple)) else meta
        shape, compute = c.shape(first), COMPUTE[first.dtype]
        if kind == "sum" and all(s == ix(1) for s in shape[-n:]):
            return mean(c, first, x, list(range(x.rank - n, x.rank)), True)
        variables = [c.arena.var("k", None) for _ in range(n)]

        def at(i: Index, what: str) -> E:
            bounds, index = [], list(i)
            count = ix(1)
            for j in range(n):
                d = x.rank - n + j
                low = divide(i[d] * x.shape[d], shape[d])
                high = divide((i[d] + 1) * x.shape[d] + shape[d] - 1, shape[d])
                bounds.append((low, high))
                index[d] = ix(variables[j])
                count = count * (high - low)
            total = c.arena.loop(what, variables, bounds, c.arena.cast(x.at(index), compute))
            if what == "argmax":  # ((k0 * high1) + k1) * high2 + k2, as the loop counts from each window's start
                return c.arena.index(flatten(x.shape[x.rank - n :], _unflatten(ix(Ind(total)), [b for _, b in bounds])))
            if what == "sum":
                return c.arena.binary("/", total, c.arena.cast(c.arena.index(count), compute))
            return total

        value = c.tensor(first.dtype, shape, lambda i: at(i, kind))
        if first is meta:
            return value
        return value, c.tensor("int64", shape, lambda i: at(i, "argmax"))

    return handler


for _n in (1, 2, 3):
    op(f"max_pool{_n}d")(_max_pool(_n, False))
    op(f"max_pool{_n}d_with_indices")(_max_pool(_n, True))
    op(f"avg_pool{_n}d")(_avg_pool(_n))
    op(f"adaptive_avg_pool{_n}d", f"_adaptive_avg_pool{_n}d")(_adaptive(_n, "sum"))
    op(f"adaptive_max_pool{_n}d")(_adaptive(_n, "max"))


@op("im2col")
def im2col(
    c: LoweringContext,
    meta: Meta,
    x: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Sliding windows as columns (torch.nn.functional.unfold)."""
    if x.rank != 4:
        raise NotLowered("no batch dimension")
    height, width = x.shape[2], x.shape[3]
    columns = (width + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) // ix(stride[1]) + 1
    area = ix(kernel[0] * kernel[1])

    def at(i: Index) -> E:
        inner = modulo(i[1], area)
        row = divide(i[2], columns) * stride[0] + divide(inner, ix(kernel[1])) * dilation[0] - padding[0]
        column = modulo(i[2], columns) * stride[1] + modulo(inner, ix(kernel[1])) * dilation[1] - padding[1]
        tests = []
        if any(padding):
            tests = [
                c.arena.compare(row, ">=", ix(0)),
                c.arena.compare(row, "<", height),
                c.arena.compare(column, ">=", ix(0)),
                c.arena.compare(column, "<", width),
            ]
        element = x.at([i[0], divide(i[1], area), row, column])
        return c.arena.guard(c.arena.both(*tests), element, c.arena.const(0, COMPUTE[x.dtype]))

    return c.tensor(x.dtype, c.shape(meta), at)


# ---------------------------------------------------------------- interpolation


def _scales(scales: Any, n: int) -> list[float | None]:
    return [float(s) for s in scales] if scales else [None] * n


def _ratio(c: LoweringContext, source: Ix, target: Ix, scale: float | None, corners: bool, ctype: str = "float") -> E:
    """Input pixels per output pixel, as PyTorch rounds it: in float, but for interpolation of doubles."""
    if scale is not None and not corners:
        return c.arena.const(1.0 / scale, ctype)
    less = 1 if corners else 0
    top, bottom = (c.arena.cast(c.arena.index(s - less), ctype) for s in (source, target))
    if corners:
        return c.arena.call("corner_ratio", top, bottom)
    return c.arena.binary("/", top, bottom)


def _whole_ratio(c: LoweringContext, i: Ix, source: Ix, target: Ix, position: E) -> E:
    """The position, but i where the size stays and i // 2 where it doubles, whatever the scale says (as PyTorch)."""
    double = c.arena.select(
        c.arena.compare(target, "==", source * 2), c.arena.cast(c.arena.index(divide(i, ix(2))), "long"), position
    )
    return c.arena.select(c.arena.compare(target, "==", source), c.arena.cast(c.arena.index(i), "long"), double)


def _nearest(n: int, exact: bool) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, size: Any, scales: Any = None, *rest: Any) -> Tensor:
        shape = c.shape(meta)
        given = _scales(scales, n) if isinstance(scales, (list, tuple)) else [scales, *rest][:n]
        given = (given + [None] * n)[:n]

        def at(i: Index) -> E:
            index = list(i)
            for j in range(n):
                d = x.rank - n + j
                factor = given[j]
                if factor is not None and float(factor).is_integer() and factor >= 1:
                    index[d] = divide(i[d], ix(int(factor)))
                    continue
                ratio = _ratio(c, x.shape[d], shape[d], factor, False)
                name = "nearest_exact_index" if exact else "nearest_index"
                position = c.arena.call(name, c.arena.index(i[d]), ratio, c.arena.index(x.shape[d]), ctype="long")
                if factor is not None and not exact:
                    position = _whole_ratio(c, i[d], x.shape[d], shape[d], position)
                index[d] = ix(Ind(position))
            return x.at(index)

        return c.tensor(meta.dtype, shape, at)

    return handler


for _n in (1, 2, 3):
    op(f"upsample_nearest{_n}d.vec", f"upsample_nearest{_n}d")(_nearest(_n, False))
    op(f"_upsample_nearest_exact{_n}d.vec", f"_upsample_nearest_exact{_n}d")(_nearest(_n, True))


def _linear(n: int) -> Callable[..., Tensor]:
    def handler(
        c: LoweringContext, meta: Meta, x: Tensor, size: Any, corners: bool, scales: Any = None, *rest: Any
    ) -> Tensor:
        source = c.realise(x) if not x.buffer else x
        shape, kind = c.shape(meta), COMPUTE[meta.dtype]
        given = _scales(scales, n) if isinstance(scales, (list, tuple)) else ([scales, *rest] + [None] * n)[:n]
        if meta.dtype not in FLOATING:
            raise NotLowered("interpolation of whole numbers, which the library rounds in its own way")
        m, one = Math(c, meta.dtype), c.arena.const(1, kind)

        def at(i: Index) -> E:
            corners_of: list[list[tuple[Ix, E]]] = []
            for j in range(n):
                d = x.rank - n + j
                ratio = _ratio(c, x.shape[d], shape[d], given[j], corners, kind)
                where = c.arena.call(
                    "corner_position" if corners else "centre_position", c.arena.index(i[d]), ratio, ctype=kind
                )
                low = ix(Ind(c.arena.cast(where, "long")))
                high = ix(Fn("min", low + 1, x.shape[d] - 1))
                weight = c.arena.binary("-", where, c.arena.cast(c.arena.index(low), kind))
                corners_of.append([(low, c.arena.binary("-", one, weight)), (high, weight)])
            return _blend(c, source, list(i), corners_of, kind, x.rank - n)

        return c.cast(c.tensor(m.dtype, shape, at), meta.dtype)

    return handler


def _blend(c: LoweringContext, x: Tensor, index: list[Ix], ends: list[list[tuple[Ix, E]]], kind: str, d: int) -> E:
    """The weighted sum over the corners, innermost dimension first."""
    if not ends:
        return c.arena.cast(x.at(index), kind)
    parts = []
    for position, weight in ends[0]:
        inner = _blend(c, x, [*index[:d], position, *index[d + 1 :]], ends[1:], kind, d + 1)
        parts.append(c.arena.binary("*", c.arena.cast(weight, kind), inner))
    return c.arena.binary("+", parts[0], parts[1])


for _n, _name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    op(f"upsample_{_name}.vec", f"upsample_{_name}")(_linear(_n))
