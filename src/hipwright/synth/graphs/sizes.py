"""The values of symbolic size expressions of captured graphs, at their captured sizes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from hipwright import syntax

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def evaluate_size(text: str, hints: Mapping[str, int]) -> int:
    """The value of a size expression at the captured sizes; -1 for an unreadable one."""
    try:
        return _value(syntax.parse(text, mode="eval").body, hints)
    except (SyntaxError, KeyError, ZeroDivisionError, TypeError):
        return -1


def _value(node: ast.expr, hints: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return hints[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, hints)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATIONS[type(op)](_value(left, hints), _value(right, hints))
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=args):
            return (max if name == "max" else min)(_value(a, hints) for a in args)
    raise KeyError(type(node).__name__)
