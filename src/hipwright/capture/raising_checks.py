"""Checks of values that a forward makes only to raise: `if (var < 0).any(): raise ...`, `assert (x > 0).all()`.

A graph holds no raise, and for inputs that the module takes such a check never fires: while a module is traced, its
condition is taken to be the one that goes on. A program that comes of it does not raise where the module does. Any
other condition on values is left to torch.export, which refuses it; so is a check in a `try` that catches. Imports
torch.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

import hipwright
from hipwright.syntax import parse

_HERE = f"{Path(hipwright.__file__).parent}{os.sep}"
_LIBRARIES = (_HERE, f"{Path(torch.__file__).parent}{os.sep}")


@contextmanager
def raising_checks_pass() -> Iterator[None]:
    """A context in which a tensor without data, as the condition of such a check, has the truth value that goes on."""
    usual, usual_item = torch.Tensor.__bool__, torch.Tensor.item

    def truth(self: torch.Tensor) -> bool:
        known = _goes_on(sys._getframe(1)) if isinstance(self, FakeTensor) else None
        return usual(self) if known is None else known

    def item(self: torch.Tensor) -> Any:
        known = _goes_on(sys._getframe(1)) if isinstance(self, FakeTensor) and self.dtype == torch.bool else None
        return usual_item(self) if known is None else known

    torch.Tensor.__bool__, torch.Tensor.item = truth, item
    try:
        yield
    finally:
        torch.Tensor.__bool__, torch.Tensor.item = usual, usual_item


def _goes_on(frame: FrameType) -> bool | None:
    """The truth value of the operands of the check that a frame is at, for which nothing is raised; None where it is at
    none, or what it raises would be caught.
    """
    for first, last, value in _checks(_source(frame)):
        if first <= frame.f_lineno <= last:
            return None if _caught(frame) else value
    return None


def _caught(frame: FrameType | None) -> bool:
    """Whether the frame, or code outside torch and hipwright that called it, is in a `try` that catches."""
    direct = frame
    while frame is not None:
        if frame is direct or not frame.f_code.co_filename.startswith(_LIBRARIES):
            if any(first <= frame.f_lineno <= last for first, last in _tries(_source(frame))):
                return True
        elif frame.f_code.co_filename.startswith(_HERE):
            return False  # the capture called the module
        frame = frame.f_back
    return False


def _source(frame: FrameType) -> str:
    return "".join(linecache.getlines(frame.f_code.co_filename))


@functools.lru_cache(maxsize=16)
def _tries(source: str) -> list[tuple[int, int]]:
    """(first line, last line) of what every `try` with handlers runs."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return []
    tries = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers]
    return [(node.body[0].lineno, node.body[-1].end_lineno or 0) for node in tries]


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
