"""Constant folding for lowering, and helpers on syntax trees. Imports torch through the table."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hipwright.program.lower.table import StateModule, StateTensor

UNROLL = 128  # iterations up to which a loop over known numbers is unrolled


@dataclass(frozen=True)
class Constant:
    """A value known at lowering: a number, a string, a tuple, a dtype, a StateModule or a StateTensor."""

    value: Any


Lowered = Constant | ast.expr
N = TypeVar("N", bound=ast.AST)
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def at(node: N, source: ast.AST) -> N:
    """`node` with the source location of `source`."""
    return ast.copy_location(node, source)


def store(target: ast.expr) -> ast.expr:
    """A copy of an assignment target."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Store())
    if isinstance(target, ast.Starred):
        return ast.Starred(value=store(target.value), ctx=ast.Store())
    assert isinstance(target, (ast.Tuple, ast.List))
    return ast.Tuple(elts=[store(item) for item in target.elts], ctx=ast.Store())


def returns(node: ast.stmt) -> bool:
    """Whether a lowered statement always returns."""
    if isinstance(node, ast.If):
        return bool(node.body and node.orelse) and returns(node.body[-1]) and returns(node.orelse[-1])
    return isinstance(node, ast.Return)


def holds_module(value: Any) -> bool:
    """Whether a value is a StateModule, or a tuple that contains one."""
    return any(map(holds_module, value)) if isinstance(value, tuple) else isinstance(value, StateModule)


def fold(op: ast.operator, a: Any, b: Any) -> Constant | None:
    """The result of an operation on known values, None where it is left to run time."""
    plain = (bool, int, float)
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(op, ast.Add):
        return Constant(a + b)
    if isinstance(a, tuple) and isinstance(b, int) and isinstance(op, ast.Mult) and len(a) * b <= UNROLL:
        return Constant(a * b)
    if not isinstance(a, plain) or not isinstance(b, plain):
        return None
    if isinstance(op, (ast.Pow, ast.LShift, ast.RShift)):
        small = abs(b) <= 64 and (isinstance(a, float) or abs(a) < 2**32)
        how = {ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.RShift: operator.rshift}[type(op)]
        return Constant(how(a, b)) if small else None
    return Constant(_BINARY[type(op)](a, b)) if type(op) in _BINARY else None


def describe(value: Any) -> str:
    """A description of a value for error messages."""
    if isinstance(value, StateTensor):
        return "a parameter" if value.kind == "params" else "a buffer"
    if isinstance(value, StateModule):
        return "a module"
    return "None" if value is None else f"a {type(value).__name__}"


def class_hint(name: str) -> str:
    """ " (Conv2d)" or ""."""
    return f" ({name})" if name else ""
