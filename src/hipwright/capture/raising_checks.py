"""Checks of values that a forward makes only to raise: `if (var < 0).any(): raise ...`, `assert (x > 0).all()`.

A graph holds no raise, and for inputs that the module takes such a check never fires: while a module is traced, its
condition is taken to be the one that goes on. A program that comes of it does not raise where the module does. Any
other condition on values is left to torch.export, which refuses it. Imports torch.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from hipwright.syntax import parse


@contextmanager
def raising_checks_pass() -> Iterator[None]:
    """A context in which a tensor without data, as the condition of such a check, has the truth value that goes on."""
    usual, usual_item = torch.Tensor.__bool__, torch.Tensor.item

    def truth(self: torch.Tensor) -> bool:
        known = _goes_on(*_caller()) if _without_data(self) else None
        return usual(self) if known is None else known

    def item(self: torch.Tensor) -> Any:
        known = _goes_on(*_caller()) if self.dtype == torch.bool and _without_data(self) else None
        return usual_item(self) if known is None else known

    torch.Tensor.__bool__, torch.Tensor.item = truth, item
    try:
        yield
    finally:
        torch.Tensor.__bool__, torch.Tensor.item = usual, usual_item


def _caller() -> tuple[str, int]:
    """File and line of the statement that asks for a truth value."""
    frame = sys._getframe(2)
    return frame.f_code.co_filename, frame.f_lineno


def _without_data(tensor: Any) -> bool:
    inner = torch._from_functional_tensor(tensor) if torch._is_functional_tensor(tensor) else tensor
    return isinstance(inner, FakeTensor) or isinstance(getattr(tensor, "elem", None), torch.Tensor)


def _goes_on(file: str, line: int) -> bool | None:
    """The truth value of the operands of the check at a line for which nothing is raised; None where there is none."""
    for first, last, value in _checks("".join(linecache.getlines(file))):
        if first <= line <= last:
            return value
    return None


@functools.lru_cache(maxsize=16)
def _checks(source: str) -> list[tuple[int, int, bool]]:
    """(first line, last line, truth value of all operands) of every test that a file makes only to raise.

    Not of one whose operands differ, as in `a and not b`.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            value = _operands(node.test, True)
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            value = _operands(node.test, False)
        else:
            continue
        if value is not None:
            found.append((node.lineno, node.test.end_lineno or node.lineno, value))
    return found


def _operands(test: ast.expr, wanted: bool) -> bool | None:
    """The truth value of every operand that makes the test `wanted`; None where they differ."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _operands(test.operand, not wanted)
    if isinstance(test, ast.BoolOp):
        found = {_operands(value, wanted) for value in test.values}
        return found.pop() if len(found) == 1 else None
    return wanted
