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

NUMBER_HINT = "a graph holds for all values: keep it a tensor, as a number taken out of one is not in the graph"
BRANCH_HINT = "a graph holds for all values: compute both sides and choose with torch.where"
SIZE_HINT = (
    "a graph holds for all values: choose with torch.where or a mask of fixed size instead of boolean indexing, and "
    "sum over all rows with weights of 0 instead of picking some"
)
UNTRACED = "the engine needs a forward that torch.export traces"
_NUMBER = re.compile(r"\.(?:item|tolist|numpy)\(|\b(?:int|float|bool)\(")
_BRANCH = re.compile(r"^(?:if|elif|while|assert)\b|\bif\b.*\belse\b")
_CAUSED = re.compile(r"Caused by: \((?P<file>[^():]+):(?P<line>\d+) in \w+\)")
_TRACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in \w+\n\s*(?P<code>[^\n]+)')
_MARKS = ("data-dependent", "data dependent", "DataDependent", "unbacked")


_TORCH = Path(torch.__file__).parent
_OURS = tuple(f"{one}{os.sep}" for one in (_TORCH, _TORCH.parent / "sympy", Path(hipwright.__file__).parent))


class ValueDependentSize(ValueError):
    """A size that only the values of a tensor give."""


def at_node(node: Any) -> str:
    """The statement that made a node: "task.py line 12: `y = x[x > 0]`", "" where it is not known."""
    found = list(_TRACE.finditer(str(node.meta.get("stack_trace") or "")))
    found = [one for one in found if not one["file"].startswith(("<", *_OURS))] or found
    if not found:
        return ""
    last = found[-1]
    return f"{Path(last['file']).name} line {last['line']}: `{last['code'].strip()}`"


def explained(problem: Exception, model: torch.nn.Module) -> TaskError | None:
    """The error for a forward that depends on values, with the statement; None for another kind of problem."""
    text = str(problem)
    if isinstance(problem, ValueDependentSize):
        return TaskError(f"cannot capture: {text}", hint=SIZE_HINT)
    if not any(mark in f"{type(problem).__name__} {text}" for mark in _MARKS):
        return None
    place, code = _statement(problem, model)
    if _NUMBER.search(code):
        what, hint = "what is taken as a number depends on the values of a tensor", NUMBER_HINT
    elif _BRANCH.search(code):
        what, hint = "what runs next depends on the values of a tensor", BRANCH_HINT
    else:
        what, hint = "what runs next depends on the values of a tensor", SIZE_HINT
    return TaskError(f"cannot capture: {place}{what}", hint=hint)


def untraced(problem: Exception, model: torch.nn.Module) -> TaskError:
    """The error for a forward that cannot be traced for another reason, with the statement that was running."""
    place, code = _statement(problem, model)
    said = (str(problem).strip().splitlines() or [""])[0][:300]
    values = _NUMBER.search(code) is not None
    reason = "its values are read on the host" if values else f"{type(problem).__name__}: {said}"
    return TaskError(f"cannot capture: {place}{reason}", hint=NUMBER_HINT if values else UNTRACED)


def _statement(problem: Exception, model: torch.nn.Module) -> tuple[str, str]:
    """(place with the code, the code) of the innermost statement outside torch and hipwright that was running."""
    frames = [(one.filename, one.lineno or 0) for one in traceback.extract_tb(problem.__traceback__)]
    source = inspect.getsourcefile(type(model)) or ""
    if (caused := _CAUSED.search(str(problem))) and source.endswith(caused["file"]):
        frames.append((source, int(caused["line"])))
    file, line = next((one for one in reversed(frames) if not one[0].startswith(_OURS)), ("", 0))
    code = linecache.getline(file, line).strip() if file else ""
    return (f"{Path(file).name} line {line}: `{code}`: ", code) if code else ("", "")
