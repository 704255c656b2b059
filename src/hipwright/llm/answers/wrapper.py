"""Unwraps a class ModelNew whose forward is a plan: moves its functions to the top level.

A plan's `self` is the reference's model, so `__init__` is not needed unless it makes tensors of its own.
"""

from __future__ import annotations

import ast
import re

from hipwright.llm.answers.repair import AnswerRefused, at_line
from hipwright.program.language import FUNCTIONS

_OWN = re.compile(
    r"\bnn\.Parameter\(|\bregister_(?:buffer|parameter)\(|\btorch\.(?:rand|randn|empty|ones|zeros|full|tensor"
    r"|normal)\w*\(|\bnn\.init\."
)


def unwrap(text: str, tree: ast.Module) -> str:
    """Moves the class's methods to the top level; returns the text unchanged without such a class or plan.

    Raises AnswerRefused("own_parameters") for an __init__ that makes tensors, which a program could not read.
    """
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name != "Model"]
    if any(isinstance(n, ast.FunctionDef) and n.name == "forward" for n in tree.body) or len(classes) != 1:
        return text
    owner = classes[0]
    methods = {n.name: n for n in owner.body if isinstance(n, ast.FunctionDef)}
    if "forward" not in methods or set(methods) - {"__init__", *FUNCTIONS} or not _is_plan(methods["forward"], text):
        return text
    if "__init__" in methods:
        _check_init(text, methods["__init__"])
    lines = text.split("\n")
    parts: list[str] = []
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS:
            parts += ["", "", *_shifted(lines[node.lineno - 1 : node.end_lineno], node.col_offset)]
        elif isinstance(node, ast.Assign) and "__global__" in ast.unparse(node.value):
            first, *rest = lines[node.lineno - 1 : node.end_lineno]
            parts += [first.lstrip(), *rest]
    first_line = min([owner.lineno, *(d.lineno for d in owner.decorator_list)])
    return "\n".join([*lines[: first_line - 1], *parts, *lines[owner.end_lineno or owner.lineno :]])


def _is_plan(forward: ast.FunctionDef, text: str) -> bool:
    """Whether forward launches kernels as a plan does, and uses no extension."""
    launches = (isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) for n in ast.walk(forward))
    return any(launches) and "load_inline" not in text


def _shifted(lines: list[str], columns: int) -> list[str]:
    """Dedents lines; string lines with less indentation stay."""
    return [line[columns:] if not line[:columns].strip() else line for line in lines]


def _check_init(text: str, init: ast.FunctionDef) -> None:
    lines = text.split("\n")
    for number in range(init.lineno, (init.end_lineno or init.lineno) + 1):
        if _OWN.search(lines[number - 1].partition("#")[0]):
            raise AnswerRefused(
                "own_parameters",
                at_line(
                    text,
                    number,
                    "ModelNew makes a tensor of its own; the program would not see it",
                    "delete __init__ and read the reference's own parameters and buffers by their path, e.g. "
                    "self.conv.weight; "
                    "weights that are packed once belong into def prepare(self)",
                ),
            )
