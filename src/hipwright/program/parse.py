"""Parses program files: text -> Parsed. Nothing of the text is ever executed."""

from __future__ import annotations

import ast

from hipwright import syntax
from hipwright.errors import ProgramError
from hipwright.program.check import check_functions
from hipwright.program.knobs import Knob, check_name, evaluate, parse_knob
from hipwright.program.language import FUNCTIONS, IMPORTS
from hipwright.program.parsed import Parsed
from hipwright.program.signature import parse_signatures
from hipwright.program.source import check_source
from hipwright.program.target_questions import check_target_questions
from hipwright.toolchain.device_headers import capitalised

MAX_TEXT = 2_000_000  # characters; ast.parse takes about 100 times that in bytes


def parse(text: str) -> Parsed:
    """Parses and checks a program's text. Raises ProgramError with the line of the first mistake."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_TEXT:
        raise ProgramError(f"the program has {len(text)} characters; the limit is {MAX_TEXT}")
    try:
        parsed = _top_level(text, _tree(text))
        return check_functions(parsed)
    except RecursionError:
        raise ProgramError("the program is nested too deeply; use more, simpler statements") from None


def _tree(text: str) -> ast.Module:
    try:
        return syntax.parse(text)
    except SyntaxError as error:
        raise ProgramError(f"syntax error: {error.msg}", error.lineno or 0) from None
    except (ValueError, MemoryError) as error:
        raise ProgramError(f"this is not Python text: {error or 'nested too deeply'}") from None


def _top_level(text: str, tree: ast.Module) -> Parsed:
    hip: tuple[str, int] | None = None
    knobs: dict[str, Knob] = {}
    constants: dict[str, ast.expr] = {}
    functions: dict[str, ast.FunctionDef] = {}
    values: dict[str, int | bool] = {}
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.FunctionDef):
            _function(node, functions)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            if ast.unparse(node) not in IMPORTS:
                raise ProgramError(f"`{ast.unparse(node)}` is not allowed; only {', '.join(IMPORTS)}", node.lineno)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name == "HIP":
                if hip is not None:
                    raise ProgramError(f"HIP is written twice (first on line {hip[1]})", node.lineno)
                hip = _hip(text, node)
                continue
            check_name(name, node.lineno)
            if name in values:
                raise ProgramError(f"{name} is defined twice", node.lineno)
            if isinstance(node.value, ast.Call) and _called(node.value) == "knob":
                knobs[name] = parse_knob(node.value, values)
                values[name] = knobs[name].default
            else:
                values[name] = evaluate(node.value, values)
                constants[name] = node.value
        elif not (index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise ProgramError(_unexpected(node), node.lineno)
    if hip is None:
        raise ProgramError("the program has no HIP source; write HIP = r'''...''' at the top level")
    if "forward" not in functions:
        raise ProgramError("the program has no plan; write def forward(self, ...): at the top level")
    kernels = parse_signatures(hip[0], hip[1])
    check_source(*hip)
    check_target_questions(*hip, knobs)
    for name in sorted(knobs.keys() & capitalised(hip[0])):
        why = f"knob {name}: a device header that HIP includes uses this name; choose another"
        raise ProgramError(why, knobs[name].line)
    for name in values:
        if name in kernels.signatures:
            raise ProgramError(f"{name} is both a kernel and a knob or constant", kernels.signatures[name].line)
    return Parsed(text, hip[0], hip[1], knobs, constants, kernels, functions)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _function(node: ast.FunctionDef, functions: dict[str, ast.FunctionDef]) -> None:
    if node.name not in FUNCTIONS:
        raise ProgramError(
            f"only forward, prepare and backward may be defined, not {node.name}; "
            "write its steps where they are used, or in HIP",
            node.lineno,
        )
    if node.name in functions:
        raise ProgramError(f"{node.name} is defined twice", node.lineno)
    functions[node.name] = node


def _hip(text: str, node: ast.Assign) -> tuple[str, int]:
    value = node.value
    if not isinstance(value, ast.Constant) or not isinstance(value.value, str):
        raise ProgramError("HIP is one string literal: HIP = r'''...'''", node.lineno)
    segment = _segment(text, value)
    # a plain literal keeps its lines, so that a compiler's line number can be mapped back to this file
    if not any(segment == p + q + value.value + q for p in ("r", "R", "") for q in ("'''", '"""')):
        raise ProgramError(
            "write HIP as one raw triple-quoted literal, HIP = r'''...''', so that lines keep their numbers",
            value.lineno,
        )
    return value.value, value.lineno


def _segment(text: str, node: ast.expr) -> str:
    """The text of a node: ast.get_source_segment in linear time, for text whose lines end with \\n."""
    assert node.end_lineno is not None
    lines = text.encode().split(b"\n")[node.lineno - 1 : node.end_lineno]
    lines[-1] = lines[-1][: node.end_col_offset]
    lines[0] = lines[0][node.col_offset :]
    return b"\n".join(lines).decode()


def _unexpected(node: ast.stmt) -> str:
    what = {
        "ClassDef": "a class",
        "AsyncFunctionDef": "an async function",
        "Expr": "an expression",
        "Assign": "this assignment",
        "If": "an if",
        "For": "a loop",
        "While": "a loop",
        "With": "a with block",
        "Try": "a try block",
        "AugAssign": "this assignment",
        "AnnAssign": "an annotation",
    }
    return (
        f"{what.get(type(node).__name__, type(node).__name__)} is not allowed at the top level; a program holds HIP, "
        "knobs, integer constants, and the functions forward, prepare and backward"
    )
