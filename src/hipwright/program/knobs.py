"""Knobs and integer constants, evaluated from syntax in the parent process, so every expression is bounded."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program.language import RESERVED, cdiv, next_pow2
from hipwright.records import Program, Record

LIMIT = 2**63
_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*\Z")


class Knob(Record, frozen=True, kw_only=True):
    """A tunable number: -DNAME=value in HIP, NAME in the plan. Boolean knobs are 0 and 1 in HIP."""

    default: int | bool
    choices: tuple[int | bool, ...]
    line: int = 0

    def value(self, chosen: int | bool) -> int | bool:
        """`chosen` converted to the knob's type."""
        return bool(chosen) if isinstance(self.default, bool) else int(chosen)


def check_name(name: str, line: int) -> None:
    """Checks that a knob or constant starts with a capital, so that -DNAME=... cannot redefine a header's names."""
    if name in RESERVED or name == "HIP":
        raise ProgramError(f"{name} has a meaning of its own in a program; choose another name", line)
    if not _NAME.match(name):
        raise ProgramError(f"{name}: names at the top level start with a capital letter, e.g. {name.upper()}", line)


def parse_knob(call: ast.Call, names: Mapping[str, int | bool]) -> Knob:
    """Parses `knob(default, choices=[...])`. Raises ProgramError."""
    line = call.lineno
    keywords = {k.arg: k.value for k in call.keywords}
    if len(call.args) != 1 or set(keywords) != {"choices"}:
        raise ProgramError("a knob is written knob(default, choices=[...])", line)
    listed = keywords["choices"]
    if not isinstance(listed, (ast.List, ast.Tuple)) or not listed.elts:
        raise ProgramError("choices is a list of integers, e.g. choices=[64, 128, 256]", line)
    default = evaluate(call.args[0], names)
    choices = tuple(evaluate(item, names) for item in listed.elts)
    value_types = {type(v) for v in (default, *choices)}
    if len(value_types) != 1:
        raise ProgramError("a knob's default and choices are all integers or all booleans", line)
    if len(set(choices)) != len(choices):
        raise ProgramError("a knob's choices must differ from each other", line)
    if default not in choices:
        raise ProgramError(f"the default {default} is not among the choices {list(choices)}", line)
    return Knob(default=default, choices=choices, line=line)


def evaluate(node: ast.expr, names: Mapping[str, int | bool]) -> int | bool:
    """The value of a constant integer expression; |value| < 2**63 at every step. Raises ProgramError."""
    value = _evaluate(node, names)
    if not isinstance(value, (bool, int)):
        raise ProgramError(f"an integer is expected here, not {value!r}", node.lineno)
    return value


def _evaluate(node: ast.expr, names: Mapping[str, int | bool]) -> int | bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        return _bounded(node.value, node)
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ProgramError(f"unknown name {node.id}; constants are made of numbers and names above", node.lineno)
        return names[node.id]
    if isinstance(node, ast.UnaryOp):
        return _bounded(_unary(node, _evaluate(node.operand, names)), node)
    if isinstance(node, ast.BinOp):
        return _bounded(_binary(node, _evaluate(node.left, names), _evaluate(node.right, names)), node)
    if isinstance(node, ast.Compare):
        return _compare(node, names)
    if isinstance(node, ast.BoolOp):
        return _boolean(node, names)
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, names) else node.orelse, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _bounded(_call(node, node.func.id, [_evaluate(a, names) for a in node.args]), node)
    raise ProgramError(
        "only integers, names above, + - * // % ** << >> & | ^, comparisons, min, max and cdiv are allowed here",
        node.lineno,
    )


def _boolean(node: ast.BoolOp, names: Mapping[str, int | bool]) -> int | bool:
    """Evaluates `and` and `or` to the deciding operand, as Python does."""
    value: int | bool = False
    for operand in node.values:
        value = _evaluate(operand, names)
        if bool(value) is isinstance(node.op, ast.Or):
            break
    return value


def _bounded(value: int | bool, node: ast.expr) -> int | bool:
    if abs(value) >= LIMIT:
        raise ProgramError("the number does not fit in 64 bits", node.lineno)
    return value


def _unary(node: ast.UnaryOp, v: int | bool) -> int | bool:
    if isinstance(node.op, ast.Not):
        return not v
    return -v if isinstance(node.op, ast.USub) else ~int(v) if isinstance(node.op, ast.Invert) else +v


def _binary(node: ast.BinOp, a: int, b: int) -> int:
    match node.op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.FloorDiv() | ast.Mod() if b == 0:
            raise ProgramError("division by zero", node.lineno)
        case ast.FloorDiv():
            return a // b
        case ast.Mod():
            return a % b
        case ast.Pow() | ast.LShift() | ast.RShift() if not 0 <= b < 64:
            raise ProgramError("the right side of ** << >> must be from 0 to 63", node.lineno)
        case ast.Pow():
            return int(a**b)
        case ast.LShift():
            return a << b
        case ast.RShift():
            return a >> b
        case ast.BitAnd():
            return a & b
        case ast.BitOr():
            return a | b
        case ast.BitXor():
            return a ^ b
    raise ProgramError("use // for division: constants are integers", node.lineno)


def _compare(node: ast.Compare, names: Mapping[str, int | bool]) -> bool:
    values = [_evaluate(v, names) for v in (node.left, *node.comparators)]
    for op, a, b in zip(node.ops, values, values[1:], strict=False):
        known = {ast.Eq: a == b, ast.NotEq: a != b, ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}
        if type(op) not in known:
            raise ProgramError("compare with == != < <= > >=", node.lineno)
        if not known[type(op)]:
            return False
    return True


def _call(node: ast.Call, name: str, args: list[int]) -> int:
    if name in ("min", "max") and len(args) >= 2:
        return min(args) if name == "min" else max(args)
    if name == "cdiv" and len(args) == 2 and args[1]:
        return cdiv(args[0], args[1])
    if name == "next_pow2" and len(args) == 1:
        return next_pow2(args[0])
    raise ProgramError(
        "only min(a, b), max(a, b), cdiv(a, b) with b not 0, and next_pow2(n) are allowed here", node.lineno
    )


# ---------------------------------------------------------------- chosen values as defaults


def text_with_knobs(program: Program) -> str:
    """The program's text with each knob's default replaced by its chosen value; nothing else changes."""
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
