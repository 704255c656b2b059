"""Pointwise operators that are one device function or one operator of C: unary, binary, comparisons, logic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, FLOATING, HALVES, ROUNDING, E
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import BITS, TABLE, held, op
from hipwright.engine.lower.values import NotLowered, Tensor

# operators that are one device function of one operand: ATen name -> function (a device header's or the math library's)
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


@op("frexp.Tensor")
def frexp(c: LoweringContext, metas: list[Meta], x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas of size 1/2 to 1, and exponents."""
    if COMPUTE[x.dtype] != "float":
        raise NotLowered("frexp of other than floats")
    mantissa = c.map(lambda a: c.arena.call("frexp_mantissa", a), x, dtype=metas[0].dtype, shape=x.shape)

    def exponent(a: E) -> E:
        return c.arena.call("frexp_exponent", a, ctype="int")

    return mantissa, c.map(exponent, x, dtype=metas[1].dtype, shape=x.shape, ctype="float")


BINARY = {
    "maximum": "nan_max",
    "minimum": "nan_min",
    "fmax": "fmax",
    "fmin": "fmin",
    "atan2": "atan2",
    "hypot": "hypot",
    "remainder.Tensor": "floor_mod",
    "remainder.Scalar": "floor_mod",
    "remainder.Scalar_Tensor": "floor_mod",
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


JUMPING = {"floor_mod", "truncated_mod"}
"""Functions whose numbers are rounded to the tensor's dtype, as torch does: a little less gives something else."""


def _binary(function: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
        plain = function == "shift_right" and type(b) is int and 0 <= b < 32
        value = (lambda x, y: c.arena.binary(">>", x, y)) if plain else (lambda x, y: c.arena.call(function, x, y))
        a, b = (held(v, meta.dtype) if function in JUMPING else v for v in (a, b))
        return c.map(value, a, b, dtype=meta.dtype, shape=c.shape(meta))

    return handler


for _name, _function in BINARY.items():
    op(_name)(_binary(_function))


COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _narrow(*operands: Any) -> str:
    """The half type, or the type of narrow integers, in which torch compares values; "" for any other type."""
    tensors = [v for v in operands if isinstance(v, Tensor)]
    wide = [t.dtype for t in tensors if t.rank] or [t.dtype for t in tensors]
    found = {d for d in wide if d in FLOATING} or {t.dtype for t in tensors if t.dtype in FLOATING}
    if found or any(isinstance(v, float) for v in operands):
        return min(found) if len(found) == 1 and found <= HALVES else ""
    return wide[0] if len(set(wide)) == 1 and wide[0] in BITS else ""


def _narrowed(c: LoweringContext, value: Any, dtype: str) -> Any:
    """A number or a tensor of another type, as it is held in a narrow type; itself for ""."""
    if dtype in BITS or not isinstance(value, Tensor):
        return c.narrowed(held(value, dtype), dtype)
    if not dtype or value.dtype in (dtype, "bool", "uint8", "int8"):
        return value
    return c.map(lambda x: c.arena.call(ROUNDING[dtype], x), value, dtype=dtype, shape=value.shape)


def _comparison(token: str) -> Callable[..., Tensor]:
    def handler(c: LoweringContext, meta: Meta, a: Any, b: Any) -> Tensor:
        narrow = _narrow(a, b)
        return c.map(
            lambda x, y: c.arena.binary(token, x, y, "bool"),
            _narrowed(c, a, narrow),
            _narrowed(c, b, narrow),
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
    op(
        f"bitwise_{_name}.Tensor",
        f"bitwise_{_name}.Scalar",
        f"bitwise_{_name}.Scalar_Tensor",
        f"__{_name}__.Tensor",
        f"__{_name}__.Scalar",
    )(_bitwise(_token, _bool))


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
