"""Finds the expressions of a plan that cannot be tensors, so that run time need not check them. No torch."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Set

from hipwright.program.language import HOST, METADATA_METHODS

_METADATA = frozenset(("shape", "ndim", "dtype"))
_NUMBERS = frozenset(("cdiv", "next_pow2", "len", "range", "int", "float", "bool", "abs", "round"))  # for any arguments
_LOWERED = ("__hw_raw_h_", "__hw_h_")  # prefixes of host functions in lowered code


def is_host_value(node: ast.expr, names: Set[str]) -> bool:
    """Whether an expression, source or lowered, neither is nor contains a tensor. names: names known not to be
    tensors."""
    match node:
        case ast.Constant():
            return True
        case ast.Name():
            return node.id in names
        case ast.Attribute():
            return node.attr in _METADATA
        case ast.Subscript():
            return is_host_value(node.value, names)
        case ast.BinOp():
            return is_host_value(node.left, names) and is_host_value(node.right, names)
        case ast.UnaryOp():
            return is_host_value(node.operand, names)
        case ast.Compare():
            return all(is_host_value(part, names) for part in (node.left, *node.comparators))
        case ast.BoolOp():
            return all(is_host_value(part, names) for part in node.values)
        case ast.IfExp():
            return is_host_value(node.body, names) and is_host_value(node.orelse, names)
        case ast.Tuple() | ast.List():
            return all(is_host_value(part, names) for part in node.elts)
        case ast.Call(func=ast.Name(id="__hw_host")):
            return True
        case ast.Call(func=ast.Name(id=name)):
            plain = functools.reduce(str.removeprefix, _LOWERED, name)
            return plain in _NUMBERS or (plain in HOST and all(is_host_value(arg, names) for arg in node.args))
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in METADATA_METHODS
    return False


def host_value_names(function: ast.FunctionDef, known: Set[str]) -> frozenset[str]:
    """The names that are never tensors in a function: locals without a tensor binding, and known names it does not
    bind."""
    bindings = list(_bindings(function))
    bound = {name for name, _ in bindings} | {a.arg for a in function.args.args}
    outside = known - bound
    hosts = bound - {a.arg for a in function.args.args}
    while tensors := {n for n, value in bindings if n in hosts and not is_host_value(value, hosts | outside)}:
        hosts -= tensors
    return frozenset(hosts | outside)


def _bindings(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """(name, the value that it or a part of it is bound to)."""
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case ast.AugAssign(target=ast.Name(id=name) as target):
                targets, value = [target], ast.BinOp(ast.Name(name, ast.Load()), node.op, node.value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                targets = [target]
        yield from ((part.id, value) for goal in targets for part in ast.walk(goal) if isinstance(part, ast.Name))
