"""Pooling, unfolding and interpolation: every output reads a small window of the input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, E
from hipwright.engine.ir.index import Fn, Ind, Ix, divide, ix, modulo, product
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.conv import plane_position, window_start
from hipwright.engine.lower.reduce import Math, mean
from hipwright.engine.lower.table import as_int, op
from hipwright.engine.lower.values import Index, NotLowered, Tensor
from hipwright.engine.lower.windows.pool_windows import (
    adaptive_windows,
    are_long,
    bounds,
    places,
    plane_places,
    pool_windows,
    reduced,
    walked,
)


def _spread(value: Any, n: int, default: int | None = None) -> list[int]:
    if value is None or value == []:
        value = default
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return [as_int(v) for v in (listed * n if len(listed) == 1 else listed)]


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
        k, p, d = _spread(kernel, n), _spread(padding, n), _spread(dilation, n)
        s = _spread(stride, n) if stride else k
        shape = c.shape((meta if indices else (meta,))[0])
        if COMPUTE[x.dtype] not in ("float", "double"):
            raise NotLowered("pooling of integers")
        windows = pool_windows(c, x, shape, k, s, p, d, ceil)
        long = are_long(c, windows)
        most = reduced(c, "max", windows, x.dtype).at if long else walked(c, "max", windows)
        values = c.tensor(x.dtype, shape, most)
        if not indices:
            return values
        place = places(c, windows).at if long else walked(c, "argmax", windows)
        return values, c.tensor("int64", shape, lambda i: _flat_position(c, x, n, place(i), k, s, p, d, i))

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
        windows = pool_windows(c, x, c.shape(meta), k, s, p, [1] * n, ceil)
        kind = COMPUTE[meta.dtype]
        long = are_long(c, windows) and meta.dtype in FLOATING
        total = reduced(c, "sum", windows, Math(c, meta.dtype).dtype).at if long else walked(c, "sum", windows)

        def at(i: Index) -> E:
            count = product([ix(size) for size in k]) if divisor is None else ix(as_int(divisor))
            if not include_pad and divisor is None and any(p):
                count = product(
                    [_overlap(i[x.rank - n + j] * s[j] - p[j], k[j], x.shape[x.rank - n + j]) for j in range(n)]
                )
            return c.arena.binary("/", total(i), c.arena.cast(c.arena.index(count), kind))

        return c.tensor(meta.dtype, c.shape(meta), at)

    return handler


def _overlap(start: Ix, length: int, size: Ix) -> Ix:
    return ix(Fn("min", start + length, size)) - ix(Fn("max", start, ix(0)))


def _adaptive(n: int, kind: str) -> Callable[..., Any]:
    def handler(c: LoweringContext, meta: Any, x: Tensor, size: Any) -> Any:
        first = meta[0] if isinstance(meta, (list, tuple)) else meta
        shape, compute = c.shape(first), COMPUTE[first.dtype]
        whole = all(s == ix(1) for s in shape[-n:])
        if kind == "sum" and whole:
            return mean(c, first, x, list(range(x.rank - n, x.rank)), True)
        windows = adaptive_windows(c, x, shape, n)
        long = windows if whole or are_long(c, windows) else None
        if first.dtype not in FLOATING:
            raise NotLowered("pooling of integers")
        if long is not None:
            found = reduced(c, kind, long, Math(c, first.dtype).dtype if kind == "sum" else x.dtype)
        variables = [c.arena.var("k", None) for _ in range(n)]

        def serial(i: Index, what: str) -> E:
            index = list(i)
            for j, variable in enumerate(variables):
                index[x.rank - n + j] = ix(variable)
            return c.arena.loop(what, variables, bounds(x, shape, i, n), c.arena.cast(x.at(index), compute))

        def at(i: Index) -> E:
            total = serial(i, kind) if long is None else c.arena.cast(found.at(i), compute)
            if kind == "max":
                return total
            count = product([high - low for low, high in bounds(x, shape, i, n)])
            return c.arena.binary("/", total, c.arena.cast(c.arena.index(count), compute))

        value = c.tensor(first.dtype, shape, at)
        if first is meta:
            return value
        if long is not None:
            return value, plane_places(c, long)

        def place(i: Index) -> E:  # ((k0 * high1) + k1) * high2 + k2, as the loop counts from each window's start
            ends = [high for _, high in bounds(x, shape, i, n)]
            where = unflatten(ends, ix(Ind(serial(i, "argmax"))))
            return c.arena.index(flatten(x.shape[x.rank - n :], where))

        return value, c.tensor("int64", shape, place)

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
