"""Which statement of a forward depends on the values of tensors, so that no graph can hold it. Imports torch."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import traceback
from pathlib import Path
from typing import Any

import torch

import hipwright
from hipwright.errors import TaskError

HINT = (
    "a graph holds for all values: choose with torch.where or a mask of fixed size instead of `if` and boolean "
    "indexing, and sum over all rows with weights of 0 instead of picking some"
)
_CAUSED = re.compile(r"Caused by: \((?P<file>[^():]+):(?P<line>\d+) in \w+\)")
_TRACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in \w+\n\s*(?P<code>[^\n]+)')
_MARKS = ("data-dependent", "data dependent", "DataDependent", "unbacked")


_TORCH = Path(torch.__file__).parent
_OURS = tuple(f"{one}{os.sep}" for one in (_TORCH, _TORCH.parent / "sympy", Path(hipwright.__file__).parent))


class ValueDependentSize(ValueError):
    """A size that only the values of a tensor give."""


def at_node(node: Any) -> str:
    """The statement that made a node: "line 12: `y = x[x > 0]`", "" where it is not known."""
    found = list(_TRACE.finditer(str(node.meta.get("stack_trace") or "")))
    return f"line {found[-1]['line']}: `{found[-1]['code'].strip()}`" if found else ""


def explained(problem: Exception, model: torch.nn.Module) -> TaskError | None:
    """The error for a forward that depends on values, with the statement; None for another kind of problem."""
    text = str(problem)
    if isinstance(problem, ValueDependentSize):
        return TaskError(f"cannot capture: {text}", hint=HINT)
    if not any(mark in f"{type(problem).__name__} {text}" for mark in _MARKS):
        return None
    return TaskError(
        f"cannot capture: {_statement(problem, model)}what runs next depends on the values of a tensor", hint=HINT
    )


def _statement(problem: Exception, model: torch.nn.Module) -> str:
    """The innermost statement outside torch and hipwright that was running."""
    frames = [(one.filename, one.lineno or 0) for one in traceback.extract_tb(problem.__traceback__)]
    source = inspect.getsourcefile(type(model)) or ""
    if (caused := _CAUSED.search(str(problem))) and source.endswith(caused["file"]):
        frames.append((source, int(caused["line"])))
    file, line = next((one for one in reversed(frames) if not one[0].startswith(_OURS)), ("", 0))
    if not file:
        return ""
    place = f"line {line}" if file == source else f"{Path(file).name} line {line}"
    return f"{place}: `{linecache.getline(file, line).strip()}`: "
