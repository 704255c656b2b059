"""A program's chosen knobs written into its text, so that the text alone is the program."""

from __future__ import annotations

import ast

from hipwright import syntax
from hipwright.records import Program


def settled(program: Program) -> str:
    """The text with each knob's default replaced by the chosen value; everything else stays as it is."""
    lines = [line.encode() for line in program.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    for node in reversed(syntax.parse(program.text).body):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args):
            continue
        name = node.targets[0].id if isinstance(node.targets[0], ast.Name) else ""
        default = node.value.args[0]
        if name in program.knobs and default.end_lineno == default.lineno and _is_knob(node.value):
            row = default.lineno - 1
            value = _literal(program.knobs[name], default).encode()
            lines[row] = lines[row][: default.col_offset] + value + lines[row][default.end_col_offset :]
    return b"\n".join(lines).decode()


def _is_knob(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "knob"


def _literal(value: int, default: ast.expr) -> str:
    boolean = isinstance(default, ast.Constant) and isinstance(default.value, bool)
    return repr(bool(value)) if boolean else repr(int(value))
