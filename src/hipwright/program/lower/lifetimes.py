"""Frees what a lowered plan no longer uses: its locals hold tensors until the function returns otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def freed(body: list[ast.stmt], parameters: Iterable[str] = ()) -> list[ast.stmt]:
    """The statements of a function, with every local set to None after the last statement that names it.

    parameters: its parameters. The device's memory is reused in the order of the stream, as that of torch's own
    operators is. A name within a loop or a branch lives until that has ended.
    """
    locals_ = set(parameters) | {name for one in body for name in _names(one, ast.Store)}
    last = {name: place for place, one in enumerate(body) for name in _names(one) if name in locals_}
    ending: dict[int, list[str]] = {}
    for name, place in last.items():
        ending.setdefault(place, []).append(name)
    out: list[ast.stmt] = []
    for place, one in enumerate(body):
        out.append(one)
        if place in ending and place + 1 < len(body):
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in sorted(ending[place])]
            out.append(ast.copy_location(ast.Assign(targets=targets, value=ast.Constant(None)), one))
    return out


def _names(node: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}
