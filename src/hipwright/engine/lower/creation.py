"""Casts, copies, and values that are made from numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, HALVES, ROUNDING, E
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import held, op
from hipwright.engine.lower.values import Index, NotLowered, Tensor
from hipwright.float8 import FLOAT8


@op("_to_copy", "to.dtype", "to.device", "to.dtype_layout", "type_as", "to.other")
def to_copy(c: LoweringContext, meta: Meta, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """A cast; to a narrow type it really rounds, except to half what has no more than 8 bits."""
    if meta.dtype == x.dtype:
        return x
    exact = x.dtype in ("uint8", "int8", "bool", *FLOAT8) and meta.dtype in HALVES
    if meta.dtype in ROUNDING and not exact:
        rounding = ROUNDING[meta.dtype]
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
        value = number if position is None else held(args[position], meta.dtype)
        value = c.narrowed(value, meta.dtype)
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


@op("eye", "eye.m")
def eye(c: LoweringContext, meta: Meta, *args: Any, **kwargs: Any) -> Tensor:
    """One on the diagonal, zero elsewhere."""
    kind = COMPUTE[meta.dtype]
    one, zero = (c.operand(number, kind, [], []) for number in (1, 0))
    return c.tensor(meta.dtype, c.shape(meta), lambda i: c.arena.select(c.arena.compare(i[0], "==", i[1]), one, zero))
