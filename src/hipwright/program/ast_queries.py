"""Queries on a plan's syntax tree, and errors with the line of a node. Torch-free."""

from __future__ import annotations

import ast

from hipwright.errors import ProgramError


def error_at(node: ast.AST, message: str) -> ProgramError:
    """A ProgramError with the line of a node."""
    return ProgramError(message, getattr(node, "lineno", 0))


def in_place(name: str) -> bool:
    """Whether a name is that of an in-place method, such as relu_."""
    return name.endswith("_") and not name.endswith("__")


def is_str(node: ast.expr | None) -> bool:
    """Whether a node is a string literal."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def str_of(node: ast.expr | None) -> str:
    """The value of a string literal, "" for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def subscripted(node: ast.expr) -> str:
    """The name of which an expression is the value itself or a part by subscripts; "" for another expression."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_range(node: ast.expr) -> bool:
    """Whether a node is a call of range."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def bound_names(node: ast.AST) -> set[str]:
    """Names that are assigned anywhere inside a node."""
    found: set[str] = set()
    todo: list[object] = [node]
    while todo:  # takes a third of the time of ast.walk
        item = todo.pop()
        if isinstance(item, ast.Name):
            if isinstance(item.ctx, ast.Store):
                found.add(item.id)
        elif isinstance(item, list):
            todo += item
        elif isinstance(item, ast.AST):
            todo += [value for value in vars(item).values() if isinstance(value, (ast.AST, list))]
    return found
