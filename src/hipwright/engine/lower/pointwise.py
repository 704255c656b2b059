"""Pointwise operators: ATen name -> expression of the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, E
from hipwright.engine.lower.core import TABLE, Index, LoweringContext, NotLowered, Tensor, op

# operators that are one device function of one operand: ATen name -> function (helpers.py or the math library)
UNARY = {
    "relu": "relu",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "tanh": "tanh",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "asin": "asin",
    "acos": "acos",
    "atan": "atan",
    "sinh": "sinh",
    "cosh": "cosh",
    "asinh": "asinh",
    "acosh": "acosh",
    "atanh": "atanh",
    "erf": "erf",
    "erfc": "erfc",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "rint",
    "mish": "mish",
    "hardswish": "hardswish",
    "hardsigmoid": "hardsigmoid",
    "softsign": "softsign",
    "log_sigmoid": "logsigmoid",
    "relu6": "relu6",
    "selu": "selu",
    "sign": "sign",
    "sgn": "sign",
    "abs": "absolute",
    "square": "square",
    "frac": "frac",
    "reciprocal": "reciprocal",
    "lgamma": "lgamma",
    "tanhshrink": "tanhshrink",
}
ON_INTEGERS = {"relu", "sign", "absolute", "square", "floor", "ceil", "trunc", "rint", "relu6"}


def _unary(function: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor) -> Tensor:
        kind = COMPUTE[meta.dtype]
        if kind not in ("float", "double"):
            if function in ("floor", "ceil", "trunc", "rint"):
                return x
            if function not in ON_INTEGERS or kind == "bool":
                raise NotLowered(f"{function} of integers")
        return c.map(lambda a: c.arena.call(function, a), x, dtype=meta.dtype, shape=x.shape)

    return handler


for _name, _function in UNARY.items():
    TABLE[f"aten.{_name}.default"] = _unary(_function)

BINARY = {
    "maximum": "nan_max",
    "minimum": "nan_min",
    "fmax": "fmax",
    "fmin": "fmin",
    "atan2": "atan2",
    "hypot": "hypot",
    "remainder.Tensor": "floor_mod",
    "remainder.Scalar": "floor_mod",
    "fmod.Tensor": "truncated_mod",
    "fmod.Scalar": "truncated_mod",
    "clamp_min": "nan_max",
    "clamp_min.Tensor": "nan_max",
    "clamp_max": "nan_min",
    "clamp_max.Tensor": "nan_min",
    "floor_divide": "floor_div",
    "floor_divide.Scalar": "floor_div",
    "copysign.Tensor": "copysign",
}


def _binary(function: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
        plain = function == "shift_right" and type(b) is int and 0 <= b < 32
        value = (lambda x, y: c.arena.binary(">>", x, y)) if plain else (lambda x, y: c.arena.call(function, x, y))
        return c.map(value, a, b, dtype=meta.dtype, shape=c.shape(meta))

    return handler


for _name, _function in BINARY.items():
    op(_name)(_binary(_function))

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _comparison(token: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
        return c.map(
            lambda x, y: c.arena.binary(token, x, y, "bool"),
            a,
            b,
            dtype="bool",
            shape=c.shape(meta),
            ctype=c.joint(a, b),
        )

    return handler


for _name, _token in COMPARISONS.items():
    op(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_token))

LOGICAL = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}


def _logical(token: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Tensor, b: Tensor) -> Tensor:
        return c.map(
            lambda x, y: c.arena.binary(token, x, y, "bool"), a, b, dtype="bool", shape=c.shape(meta), ctype="bool"
        )

    return handler


for _name, _token in LOGICAL.items():
    op(_name)(_logical(_token))


def _bitwise(token: str, on_bool: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
        chosen = on_bool if meta.dtype == "bool" else token
        return c.map(lambda x, y: c.arena.binary(chosen, x, y), a, b, dtype=meta.dtype, shape=c.shape(meta))

    return handler


for _name, _token, _bool in (("and", "&", "&&"), ("or", "|", "||"), ("xor", "^", "!=")):
    op(f"bitwise_{_name}.Tensor", f"bitwise_{_name}.Scalar", f"__{_name}__.Tensor", f"__{_name}__.Scalar")(
        _bitwise(_token, _bool)
    )


def _shift(function: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
        if meta.dtype in FLOATING or meta.dtype == "bool":
            raise NotLowered(f"{function} of {meta.dtype}")
        plain = function == "shift_right" and type(b) is int and 0 <= b < 32
        value = (lambda x, y: c.arena.binary(">>", x, y)) if plain else (lambda x, y: c.arena.call(function, x, y))
        return c.map(value, a, b, dtype=meta.dtype, shape=c.shape(meta))

    return handler


for _name in ("left", "right"):
    op(
        f"bitwise_{_name}_shift.Tensor",
        f"bitwise_{_name}_shift.Tensor_Scalar",
        f"bitwise_{_name}_shift.Scalar_Tensor",
        f"__{_name[0]}shift__.Tensor",
        f"__{_name[0]}shift__.Scalar",
    )(_shift(f"shift_{_name}"))


@op("logical_not")
def logical_not(c: LoweringContext, meta: Meta, a: Tensor) -> Tensor:
    """!(a != 0)."""
    return c.map(lambda x: c.arena.unary("!", x), a, dtype="bool", shape=a.shape, ctype="bool")


@op("bitwise_not")
def bitwise_not(c: LoweringContext, meta: Meta, a: Tensor) -> Tensor:
    """~a, and ! of bools."""
    token = "!" if a.dtype == "bool" else "~"
    return c.map(lambda x: c.arena.unary(token, x), a, dtype=a.dtype, shape=a.shape)


@op("neg")
def neg(c: LoweringContext, meta: Meta, a: Tensor) -> Tensor:
    """-a."""
    return c.map(lambda x: c.arena.unary("-", x), a, dtype=a.dtype, shape=a.shape)


@op("isnan")
def isnan(c: LoweringContext, meta: Meta, a: Tensor) -> Tensor:
    """a != a."""
    return c.map(lambda x: c.arena.binary("!=", x, x, "bool"), a, dtype="bool", shape=a.shape, ctype=COMPUTE[a.dtype])


@op("isinf")
def isinf(c: LoweringContext, meta: Meta, a: Tensor) -> Tensor:
    """|a| == inf."""
    if a.dtype not in FLOATING:
        return c.tensor("bool", a.shape, lambda i: c.arena.const(False, "bool"))
    kind = COMPUTE[a.dtype]
    infinity = c.arena.const(float("inf"), kind)
    return c.map(
        lambda x: c.arena.binary("==", c.arena.call("absolute", x), infinity, "bool"),
        a,
        dtype="bool",
        shape=a.shape,
        ctype=kind,
    )


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
    """a ** b; small integer and half exponents without powf."""

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
            return c.arena.call(table[exponent], x) if exponent in table else c.arena.call("pow", x, y)
        return c.arena.call("integer_pow", x, y)

    return c.map(fn, a, b, dtype=meta.dtype, shape=c.shape(meta))


@op("gelu")
def gelu(c: LoweringContext, meta: Meta, x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x) (Hendrycks & Gimpel 2016), exact or with tanh."""
    name = "gelu_tanh" if approximate == "tanh" else "gelu"
    return c.map(lambda a: c.arena.call(name, a), x, dtype=meta.dtype, shape=x.shape)


def _with_numbers(function: str, *defaults: float) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, x: Tensor, *numbers: Any) -> Tensor:
        values = [n if n is not None else d for n, d in zip(numbers, defaults, strict=False)]
        values += list(defaults[len(values) :])
        return c.map(lambda *a: c.arena.call(function, *a), x, *values, dtype=meta.dtype, shape=x.shape)

    return handler


op("leaky_relu")(_with_numbers("leaky_relu", 0.01))
op("elu")(_with_numbers("elu", 1.0, 1.0, 1.0))
op("celu")(_with_numbers("celu", 1.0))
op("softplus")(_with_numbers("softplus", 1.0, 20.0))
op("threshold")(_with_numbers("threshold", 0.0, 0.0))
op("hardtanh")(_with_numbers("clamp", -1.0, 1.0))
op("hardshrink")(_with_numbers("hardshrink", 0.5))
op("softshrink")(_with_numbers("softshrink", 0.5))


@op("clamp", "clamp.Tensor", "clip")
def clamp(c: LoweringContext, meta: Meta, x: Tensor, low: Any = None, high: Any = None, **kw: Any) -> Tensor:
    """min(max(x, low), high); NaN stays NaN."""
    low, high = kw.get("min", low), kw.get("max", high)
    out = x
    for bound, function in ((low, "nan_max"), (high, "nan_min")):
        if bound is not None:
            out = c.map(
                lambda a, b, f=function: c.arena.call(f, a, b), out, bound, dtype=meta.dtype, shape=c.shape(meta)
            )
    return out


@op("prelu")
def prelu(c: LoweringContext, meta: Meta, x: Tensor, slope: Tensor) -> Tensor:
    """x > 0 ? x : slope * x, one slope per channel."""

    def at(index: Index) -> E:
        channel = index[1] if x.rank > 1 else index[0]
        weight = slope.at([channel] if slope.rank else [])
        return c.arena.call("leaky_relu", x.at(index), c.arena.cast(weight, COMPUTE[meta.dtype]))

    return c.tensor(meta.dtype, x.shape, at)


@op("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(c: LoweringContext, meta: Meta, condition: Tensor, a: Any, b: Any) -> Tensor:
    """condition ? a : b."""
    shape, kind = c.shape(meta), COMPUTE[meta.dtype]

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
    """a + weight * (b - a)."""
    return c.map(
        lambda x, y, w: c.arena.binary("+", x, c.arena.binary("*", w, c.arena.binary("-", y, x))),
        a,
        b,
        weight,
        dtype=meta.dtype,
        shape=c.shape(meta),
    )


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


@op("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "type_as", "to.other")
def to_copy(c: LoweringContext, meta: Meta, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A cast; to half it really rounds, except what has no more than 8 bits."""
    if meta.dtype == x.dtype:
        return x
    if x.dtype not in ("uint8", "int8", "bool") and meta.dtype in ("float16", "bfloat16"):
        rounding = "round_half" if meta.dtype == "float16" else "round_bfloat16"
        return c.tensor(
            meta.dtype, x.shape, lambda i: c.arena.call(rounding, c.arena.cast(x.at(i), "float"), ctype="float")
        )
    return c.cast(x, meta.dtype)


@op("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "lift_fresh", "positive", "detach_", "to.prim_Device")
def identity(c: LoweringContext, meta: Meta, x: Tensor, **kwargs: Any) -> Tensor:
    """The value itself."""
    return x


@op("copy")
def copy(c: LoweringContext, meta: Meta, x: Tensor, source: Tensor, *rest: Any) -> Tensor:
    """x.copy_(source) as a value: source broadcast to x's shape, in x's dtype."""
    return c.tensor(meta.dtype, x.shape, lambda i: c.to(source.at(c.broadcast(source, i)), meta.dtype))


@op("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
def dropout(c: LoweringContext, meta: Meta, x: Tensor, p: float, train: bool) -> Tensor:
    """Nothing in evaluation mode or for p = 0."""
    if train and p > 0:
        raise NotLowered("it draws random numbers")
    return x


def _constant(position: int | None, number: float = 0.0) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, *args: Any, **kwargs: Any) -> Tensor:
        value = number if position is None else args[position]
        return c.tensor(meta.dtype, c.shape(meta), lambda i: c.operand(value, COMPUTE[meta.dtype], [], []))

    return handler


for _name, _position, _number in (
    ("fill.Scalar", 1, 0),
    ("fill.Tensor", 1, 0),
    ("full_like", 1, 0),
    ("zeros_like", None, 0),
    ("ones_like", None, 1),
    ("new_zeros", None, 0),
    ("new_ones", None, 1),
    ("new_full", 2, 0),
    ("full", 1, 0),
    ("zeros", None, 0),
    ("ones", None, 1),
    ("scalar_tensor", 0, 0),
    ("empty.memory_format", None, 0),
    ("empty_like", None, 0),
    ("new_empty", None, 0),
):
    op(_name)(_constant(_position, _number))


@op("arange", "arange.start", "arange.start_step")
def arange(c: LoweringContext, meta: Meta, *args: Any, **kwargs: Any) -> Tensor:
    """start + i * step."""
    start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
    kind = COMPUTE[meta.dtype]

    def at(index: Index) -> E:
        if kind == "long" and isinstance(step, int):
            return c.arena.index(c.size(start) + index[0] * step)
        scaled = c.arena.binary("*", c.arena.cast(c.arena.index(index[0]), kind), c.operand(step, kind, [], []))
        return c.arena.binary("+", c.operand(start, kind, [], []), scaled)

    return c.tensor(meta.dtype, c.shape(meta), at)
