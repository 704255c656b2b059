"""Pointwise operators with a formula or numbers of their own: sums, quotients, powers, activations, selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, E
from hipwright.engine.ir.index import ONE, ZERO
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import held, op
from hipwright.engine.lower.values import Index, Tensor


@op("add.Tensor", "add.Scalar")
def add(c: LoweringContext, meta: Meta, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    """a + alpha * b."""
    return _sum(c, meta, "+", a, b, alpha)


@op("sub.Tensor", "sub.Scalar")
def sub(c: LoweringContext, meta: Meta, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    """a - alpha * b."""
    return _sum(c, meta, "-", a, b, alpha)


@op("rsub.Tensor", "rsub.Scalar")
def rsub(c: LoweringContext, meta: Meta, a: Any, b: Any, alpha: Any = 1) -> Tensor:
    """b - alpha * a."""
    return _sum(c, meta, "-", b, a, alpha)


def _sum(c: LoweringContext, meta: Meta, token: str, a: Any, b: Any, alpha: Any) -> Tensor:
    def fn(x: E, y: E) -> E:
        scaled = y if alpha == 1 else c.arena.binary("*", c.operand(alpha, y.ctype, [], []), y)
        if y.ctype == "bool":
            return c.arena.binary("||", x, scaled)
        return c.arena.binary(token, x, scaled)

    return c.map(fn, a, b, dtype=meta.dtype, shape=c.shape(meta))


@op("mul.Tensor", "mul.Scalar")
def mul(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
    """a * b."""
    token = "&&" if meta.dtype == "bool" else "*"
    return c.map(lambda x, y: c.arena.binary(token, x, y), a, b, dtype=meta.dtype, shape=c.shape(meta))


@op("outer", "ger")
def outer(c: LoweringContext, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
    """The product of every element of a vector with every one of another."""
    return mul(c, meta, c.tensor(a.dtype, [a.shape[0], ONE], lambda i: a.at(i[:1])), b)


@op("div.Tensor", "div.Scalar", "true_divide.Tensor", "div.Tensor_mode", "div.Scalar_mode")
def div(c: LoweringContext, meta: Meta, a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    """a / b, floor(a / b) or trunc(a / b)."""

    def fn(x: E, y: E) -> E:
        if rounding_mode == "floor":
            return c.arena.call("floor_div", x, y)
        quotient = c.arena.binary("/", x, y)
        return c.arena.call("trunc", quotient) if rounding_mode == "trunc" and x.ctype != "long" else quotient

    return c.map(fn, a, b, dtype=meta.dtype, shape=c.shape(meta))


@op("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
    """a ** b; small integer exponents, halves and three quarters (local response norms) without powf."""

    def fn(x: E, y: E) -> E:
        exponent = b if isinstance(b, (int, float)) and not isinstance(b, bool) else None
        if exponent == 2:
            return c.arena.call("square", x)
        if exponent == 3:
            return c.arena.call("cube", x)
        if exponent == 1:
            return x
        if x.ctype in ("float", "double"):
            table = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
            table |= {0.75: "pow_three_quarters"} if x.ctype == "float" else {}
            return c.arena.call(table[exponent], x) if exponent in table else c.arena.call("pow", x, y)
        return c.arena.call("integer_pow", x, y)

    return c.map(fn, a, b, dtype=meta.dtype, shape=c.shape(meta))


@op("gelu")
def gelu(c: LoweringContext, meta: Meta, x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x) (Hendrycks & Gimpel 2016), exact or with tanh."""
    name = "gelu_tanh" if approximate == "tanh" else "gelu"
    return c.map(lambda a: c.arena.call(name, a), x, dtype=meta.dtype, shape=x.shape)


def _with_numbers(function: str, *defaults: float, in_its_dtype: bool = False) -> Callable[..., Tensor]:
    """A device function of x and numbers; in_its_dtype: these are rounded to x's dtype, as what it decides jumps."""

    def handler(c: LoweringContext, meta: Meta, x: Tensor, *numbers: Any) -> Tensor:
        values = [n if n is not None else d for n, d in zip(numbers, defaults, strict=False)]
        values += list(defaults[len(values) :])
        values = [held(n, meta.dtype) for n in values] if in_its_dtype else values
        return c.map(lambda *a: c.arena.call(function, *a), x, *values, dtype=meta.dtype, shape=x.shape)

    return handler


op("leaky_relu")(_with_numbers("leaky_relu", 0.01))


op("elu")(_with_numbers("elu", 1.0, 1.0, 1.0))


op("celu")(_with_numbers("celu", 1.0))


op("softplus")(_with_numbers("softplus", 1.0, 20.0))


@op("threshold")
def threshold(c: LoweringContext, meta: Meta, x: Tensor, limit: Any, value: Any) -> Tensor:
    """x > limit ? x : value."""
    if meta.dtype not in FLOATING:
        return c.map(
            lambda a, b, v: c.arena.select(c.arena.binary(">", a, b, "bool"), a, v),
            *(x, limit, value),
            dtype=meta.dtype,
            shape=x.shape,
        )
    return c.map(lambda *a: c.arena.call("threshold", *a), x, limit, value, dtype=meta.dtype, shape=x.shape)


@op("hardtanh")
def hardtanh(c: LoweringContext, meta: Meta, x: Tensor, low: Any = -1.0, high: Any = 1.0) -> Tensor:
    """min(max(x, low), high)."""
    if meta.dtype not in FLOATING:
        return clamp(c, meta, x, low, high)
    return c.map(lambda *a: c.arena.call("clamp", *a), x, low, high, dtype=meta.dtype, shape=x.shape)


op("hardshrink")(_with_numbers("hardshrink", 0.5, in_its_dtype=True))


op("softshrink")(_with_numbers("softshrink", 0.5))


@op("clamp", "clamp.Tensor", "clip")
def clamp(c: LoweringContext, meta: Meta, x: Tensor, low: Any = None, high: Any = None, **kw: Any) -> Tensor:
    """min(max(x, low), high); NaN stays NaN."""
    low, high = held(kw.get("min", low), meta.dtype), held(kw.get("max", high), meta.dtype)
    out = x
    for bound, function in ((low, "nan_max"), (high, "nan_min")):
        if bound is not None:
            out = c.map(
                lambda a, b, f=function: c.arena.call(f, a, b), out, bound, dtype=meta.dtype, shape=c.shape(meta)
            )
    return out


@op("prelu")
def prelu(c: LoweringContext, meta: Meta, x: Tensor, slope: Tensor) -> Tensor:
    """x > 0 ? x : slope * x, one slope per channel (the second dimension) or one for all."""

    def at(index: Index) -> E:
        weight = slope.at([index[1] if x.rank > 1 else ZERO] if slope.rank else [])
        return c.arena.call("leaky_relu", x.at(index), c.arena.cast(weight, COMPUTE[meta.dtype]))

    return c.tensor(meta.dtype, x.shape, at)


@op("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(c: LoweringContext, meta: Meta, condition: Tensor, a: Any, b: Any) -> Tensor:
    """condition ? a : b."""
    shape, kind = c.shape(meta), COMPUTE[meta.dtype]
    a, b = (c.narrowed(held(v, meta.dtype), meta.dtype) for v in (a, b))

    def at(index: Index) -> E:
        test = c.operand(condition, "bool", shape, index)
        return c.arena.select(test, c.operand(a, kind, shape, index), c.operand(b, kind, shape, index))

    return c.tensor(meta.dtype, shape, at)


@op("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: LoweringContext, meta: Meta, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    """mask ? value : x."""
    return where(c, meta, mask, value, x)


@op("lerp.Scalar", "lerp.Tensor")
def lerp(c: LoweringContext, meta: Meta, a: Tensor, b: Tensor, weight: Any) -> Tensor:
    """a + weight * (b - a), from the nearer end: at the weight 1 it is b."""
    binary = c.arena.binary

    def fn(x: E, y: E, w: E) -> E:
        difference = binary("-", y, x)
        from_a = binary("+", x, binary("*", w, difference))
        from_b = binary("-", y, binary("*", difference, binary("-", c.arena.const(1, w.ctype), w)))
        if w.op == "const":
            return from_a if abs(w.attr) < 0.5 else from_b
        near = binary("<", c.arena.call("absolute", w), c.arena.const(0.5, w.ctype), "bool")
        return c.arena.select(near, from_a, from_b)

    return c.map(fn, a, b, weight, dtype=meta.dtype, shape=c.shape(meta))


@op("addcmul")
def addcmul(c: LoweringContext, meta: Meta, x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    """x + value * a * b."""
    return _fused(c, meta, "*", x, a, b, value)


@op("addcdiv")
def addcdiv(c: LoweringContext, meta: Meta, x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    """x + value * a / b."""
    return _fused(c, meta, "/", x, a, b, value)


def _fused(c: LoweringContext, meta: Meta, token: str, x: Tensor, a: Tensor, b: Tensor, value: Any) -> Tensor:
    def fn(base: E, y: E, z: E) -> E:
        scaled = y if value == 1 else c.arena.binary("*", c.arena.const(value, y.ctype), y)
        return c.arena.binary("+", base, c.arena.binary(token, scaled, z))

    return c.map(fn, x, a, b, dtype=meta.dtype, shape=c.shape(meta))
