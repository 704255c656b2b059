"""Files that are no tasks but are handed in as one: kernel source, candidates, files that need a file beside them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from hipwright import syntax
from hipwright.errors import BadInput, TaskError

_KERNEL_SOURCES = {".cu", ".cuh", ".hip", ".cpp", ".cc", ".h", ".hpp", ".cl"}
_JUDGE = "`hipwright eval TASK {}` judges it for the task whose Model it replaces"


def check_kind(name: str, source: str) -> None:
    """Raises BadInput for kernel source, and for a candidate without the Model that it replaces."""
    if Path(name).suffix.lower() in _KERNEL_SOURCES:
        raise BadInput(
            f"{name} is kernel source, not a task",
            hint="a task is a Python file with class Model and get_inputs() (docs/tasks.md); "
            "with a launch plan a kernel is a program (docs/program.md), which `hipwright eval TASK PROGRAM` judges",
        )
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return  # said where the file runs, with its line
    names = _names(tree)
    if "Model" in names or "ModelNew" not in names:
        return
    what = "a Triton candidate" if "triton" in _imported(tree) else "a candidate"
    raise BadInput(f"{name} defines ModelNew and no Model: it is {what}, not a task", hint=_JUDGE.format(name))


def with_sibling(error: TaskError, path: Path) -> TaskError:
    """The error with what to do about a module that is a file beside the task's."""
    missing = re.search(r"No module named '(\w+)", error.message)
    name = missing[1] if missing else ""
    if not name or not any((path.parent / place).exists() for place in (f"{name}.py", f"{name}/__init__.py", name)):
        return error
    hint = (
        f"a task is one file, which is stored and sent as it is: copy what it uses of {name} into it, "
        f"or install {name} as a package next to torch"
    )
    return TaskError(error.message, hint=hint, evidence=error.evidence)


def _names(tree: ast.Module) -> set[str]:
    """What the file may define: names at its top level, under conditions too; "Model" where it imports everything."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {"Model" if alias.name == "*" else (alias.asname or alias.name) for alias in node.names}
    return found


def _imported(tree: ast.Module) -> set[str]:
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}
