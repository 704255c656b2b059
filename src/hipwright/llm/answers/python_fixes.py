"""Mechanical fixes of a program's Python: each step is exact or does nothing.

Nothing is executed: text and syntax trees only. `fix_python` returns the text and notes on the fixes; the checks and
the parser report what remains wrong.
"""

from __future__ import annotations

import ast
import html
import re
import textwrap
import threading
import warnings
from collections.abc import Callable

from hipwright import syntax
from hipwright.llm.answers.choose import literal
from hipwright.llm.answers.hip_fixes import fix_hip
from hipwright.llm.answers.text import straighten
from hipwright.llm.answers.wrapper import unwrap
from hipwright.program import Parsed, parse
from hipwright.program.language import IMPORTS
from hipwright.program.modelnew.extensions import Unknown, evaluate

_NAMED = frozenset(
    (
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "math",
        "typing",
        "__future__",
        "hipwright",
        "hipwright.program",
        "numpy",
        "torch.utils.cpp_extension",
    )
)
_SAME = {"torch": "torch", "torch.nn": "nn", "torch.nn.functional": "F", "math": "math"}
_quiet = threading.Lock()


def tree_of(text: str) -> ast.Module:
    """ast.parse without warnings; raises SyntaxError for anything that is not Python."""
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as an invalid escape in a string
        try:
            return syntax.parse(text)
        except (ValueError, MemoryError, RecursionError) as error:
            raise SyntaxError(f"this is not Python text: {error or 'nested too deeply'}") from None


def parsed_of(text: str) -> Parsed:
    """`parse` without warnings. Raises ProgramError."""
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(text)


def fix_python(text: str) -> tuple[str, list[str]]:
    """Returns (the text after all fixes, notes on them)."""
    notes: list[str] = []
    for step, note in _TEXT_STEPS:
        changed = step(text)
        if changed != text:
            notes.append(note)
            text = changed
    try:
        tree = tree_of(text)
        for step_, note in _TREE_STEPS:
            changed = step_(text, tree)
            if changed != text:
                notes.append(note)
                text, tree = changed, tree_of(changed)
    except SyntaxError:
        return text, notes
    return _with_fixed_hip(text, tree, notes)


def _with_fixed_hip(text: str, tree: ast.Module, notes: list[str]) -> tuple[str, list[str]]:
    """Fixes the HIP literal."""
    place = hip_of(tree)
    if place is None:
        return text, notes
    node, source = place
    mended, done = fix_hip(source, _launched(tree))
    if mended == source:
        return text, notes
    return _with_hip(text, node, mended), [*notes, *done]


# ---------------------------------------------------------------- steps on text


def _dedent(text: str) -> str:
    first = next((line for line in text.split("\n") if line.strip()), "")
    return textwrap.dedent(text) if first[:1] in (" ", "\t") else text


def _entities(text: str) -> str:
    """Unescapes HTML if an #include shows that the whole text was escaped."""
    return html.unescape(text) if re.search(r"#[ \t]*include[ \t]*&lt;", text) else text


def _tabs(text: str) -> str:
    """Expands mixed tabs to 4 or 8 columns if only one is valid Python, or both mean the same."""
    if "\t" not in text:
        return text
    try:
        tree_of(text)
    except TabError:
        read = {}
        for width in (4, 8):
            spaced = re.sub(r"^[ \t]+", lambda m, w=width: m.group().expandtabs(w), text, flags=re.MULTILINE)  # type: ignore[misc]
            try:
                read[ast.dump(tree_of(spaced))] = spaced
            except SyntaxError:
                continue
        return next(iter(read.values())) if len(read) == 1 else text
    except SyntaxError:
        return text
    return text


def _strings(text: str) -> str:
    return straighten(text, "python")


_TEXT_STEPS: tuple[tuple[Callable[[str], str], str], ...] = (
    (_entities, "HTML entities"),
    (_strings, "smart quotes or odd spaces outside of strings"),
    (_dedent, "indentation of the whole block"),
    (_tabs, "tabs as blanks"),
)


# ---------------------------------------------------------------- steps on the syntax tree


def without(text: str, nodes: list[ast.stmt], tree: ast.Module) -> str:
    """Removes top-level statements; one that shares a line with another stays."""
    lines = text.split("\n")
    spans = [_span(node) for node in tree.body]
    gone = {id(node) for node in nodes}
    for i in range(len(spans) - 1, -1, -1):
        first, last = spans[i]
        shared = (i > 0 and spans[i - 1][1] >= first) or (i + 1 < len(spans) and spans[i + 1][0] <= last)
        if id(tree.body[i]) in gone and not shared:
            del lines[first - 1 : last]
    return "\n".join(lines)


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)]), node.end_lineno or node.lineno


def _imports(text: str, tree: ast.Module) -> str:
    gone: list[ast.stmt] = [
        n
        for n in tree.body
        if isinstance(n, (ast.Import, ast.ImportFrom)) and ast.unparse(n) not in IMPORTS and _needless(n)
    ]
    return without(text, gone, tree)


def _needless(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import is redundant in a plan, or useless there."""
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level or module not in _NAMED:
            return False
        if module.startswith("hipwright"):
            return all(a.name in ("knob", "cdiv", "next_pow2") and not a.asname for a in node.names)
        full = {f"{module}.{a.name}": a.asname or a.name for a in node.names}
        return module in ("typing", "__future__") or all(_SAME.get(k) == name for k, name in full.items())
    return all(
        (a.name in _SAME and a.asname in (None, _SAME[a.name])) or (a.name in ("typing", "numpy", "hipwright"))
        for a in node.names
    )


def _extras(text: str, tree: ast.Module) -> str:
    """Removes parts of the task file or a test run: class Model, get_inputs, `if __name__ == "__main__"`."""
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    gone: list[ast.stmt] = []
    for index, node in enumerate(tree.body):
        if (
            (isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse)
            or (isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"))
            or (isinstance(node, ast.ClassDef) and node.name == "Model" and _has_plan(tree, functions))
            or (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
                and index
            )
        ):
            gone.append(node)
    return without(text, gone, tree)


def _has_plan(tree: ast.Module, functions: set[str]) -> bool:
    return "forward" in functions or any(isinstance(n, ast.ClassDef) and n.name == "ModelNew" for n in tree.body)


_ROUNDED_UP = {"(a + b - 1) // b", "-(-a // b)", "-(a // -b)", "(a - 1) // b + 1"}


def _cdiv(text: str, tree: ast.Module) -> str:
    """Removes a function cdiv(a, b) with the usual body: plans have one."""
    gone: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "cdiv" and len(node.args.args) == 2:
            last = node.body[-1]
            names = {arg.arg: new for arg, new in zip(node.args.args, "ab", strict=True)}
            if isinstance(last, ast.Return) and last.value is not None and len(node.body) <= 2:
                said = re.sub(r"\w+", lambda m: names.get(m.group(), m.group()), ast.unparse(last.value))  # noqa: B023
                gone += [node] if said in _ROUNDED_UP else []
    return without(text, gone, tree)


# ---------------------------------------------------------------- the HIP literal


def hip_of(tree: ast.Module) -> tuple[ast.Assign, str] | None:
    """The statement HIP = "..." and its text, else None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HIP":
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return node, node.value.value
            return None
    return None


def _named_hip(text: str, tree: ast.Module) -> str:
    """Renames the only string with kernels to HIP, if nothing else uses its name."""
    if any(isinstance(n, ast.Name) and n.id == "HIP" for n in ast.walk(tree)):
        return text
    found = []
    lines = text.split("\n")
    for node in tree.body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and any(
            "__global__" in line for line in lines[node.lineno - 1 : node.end_lineno]
        ):
            found.append((node, target.id))
    if len(found) != 1 or sum(isinstance(n, ast.Name) and n.id == found[0][1] for n in ast.walk(tree)) != 1:
        return text
    number = found[0][0].lineno - 1
    lines[number] = re.sub(rf"^{re.escape(found[0][1])}\b[^=]*=", "HIP =", lines[number], count=1)
    return "\n".join(lines)


def _annotated(text: str, tree: ast.Module) -> str:
    """Removes the annotation of `HIP: str = ...`."""
    return re.sub(r"^HIP[ \t]*:[ \t]*[\w.]+[ \t]*=", "HIP =", text, count=1, flags=re.MULTILINE)


def _raw(text: str, tree: ast.Module) -> str:
    """Rewrites HIP as one raw literal: from one with escapes, adjacent pieces, textwrap.dedent(...) or .strip()."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "HIP":
            segment = ast.get_source_segment(text, node.value) or ""
            try:
                value = evaluate(node.value, {}, {"textwrap": "textwrap", "dedent": "textwrap.dedent"})
            except (Unknown, RecursionError):
                return text
            plain = {p + q + str(value) + q for p in ("r", "R", "") for q in ("'''", '"""')}
            wrong = isinstance(value, str) and segment not in plain and "__global__" in value
            return _with_hip(text, node, value) if wrong else text
    return text


def _with_hip(text: str, node: ast.Assign, source: str) -> str:
    if "'''" in source and '"""' in source:
        return text
    lines = text.split("\n")
    lines[node.lineno - 1 : node.end_lineno] = literal(source.removeprefix("\n").removesuffix("\n")).split("\n")
    return "\n".join(lines)


def _launched(tree: ast.Module) -> set[str]:
    """The names that a plan launches as name[grid, block](...)."""
    return {
        n.func.value.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) and isinstance(n.func.value, ast.Name)
    }


def _wrapper(text: str, tree: ast.Module) -> str:
    return unwrap(text, tree)


_TREE_STEPS: tuple[tuple[Callable[[str, ast.Module], str], str], ...] = (
    (_wrapper, "the class around forward taken off; self is the reference's own model"),
    (_imports, "needless imports removed"),
    (_extras, "parts of the task file and test code removed"),
    (_cdiv, "its own cdiv removed: a plan has one"),
    (_named_hip, "the HIP source named HIP"),
    (_annotated, "the HIP source named HIP"),
    (_raw, "the HIP source as one raw literal"),
)

__all__ = ["fix_python", "hip_of", "parsed_of", "tree_of"]
