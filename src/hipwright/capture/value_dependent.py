"""Which statement of a forward depends on the values of tensors, so that no graph can hold it. Imports torch."""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from typing import Any

import torch

from hipwright.errors import TaskError

HINT = (
    "a graph holds for all values: choose with torch.where or a mask of fixed size instead of `if` and boolean "
    "indexing, and sum over all rows with weights of 0 instead of picking some"
)
_CAUSED = re.compile(r"Caused by: \((?P<file>[^():]+):(?P<line>\d+) in \w+\)")
_TRACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in \w+\n\s*(?P<code>[^\n]+)')
_MARKS = ("data-dependent", "data dependent", "DataDependent", "unbacked")


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
    """The innermost statement of the task's own file that was running."""
    source = inspect.getsourcefile(type(model)) or ""
    frames = traceback.extract_tb(problem.__traceback__)
    line = next((one.lineno for one in reversed(frames) if one.filename == source), None)
    if line is None and (caused := _CAUSED.search(str(problem))) and source.endswith(caused["file"]):
        line = int(caused["line"])
    return f"line {line}: `{linecache.getline(source, line).strip()}`: " if line else ""
