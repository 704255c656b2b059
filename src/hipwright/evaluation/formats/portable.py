"""Python text that names an NVIDIA GPU, made to run on whichever device its task is opened on.

A task file makes its tensors on torch's default device (docs/tasks.md): so "cuda" becomes
`torch.get_default_device()`, and `x.cuda()` becomes `x.to(...)` of it. Text that names no such device is left as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from hipwright import syntax
from hipwright.evaluation.formats.read import Malformed

_DEVICE = re.compile(r"cuda(:\d+)?")
_FUTURE = "__future__"


def on_default_device(text: str) -> str:
    """The text with its CUDA devices replaced; comments go where anything is. Raises SyntaxError."""
    if "cuda" not in text:
        return text
    tree = syntax.parse(text)
    mover = _ToDefault()
    moved = mover.visit(tree)
    return ast.unparse(ast.fix_missing_locations(moved)) + "\n" if mover.count else text


class _ToDefault(ast.NodeTransformer):
    """Replaces devices outside comparisons, where a text is compared with a device's type."""

    def __init__(self) -> None:
        self.count = 0

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _DEVICE.fullmatch(node.value):
            self.count += 1
            return _default_device()
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        of = node.func
        if isinstance(of, ast.Attribute) and of.attr == "cuda":
            self.count += 1
            return ast.Call(ast.Attribute(of.value, "to", ast.Load()), [_default_device()], [])
        wrapped = isinstance(of, ast.Attribute) and of.attr == "device" and len(node.args) == 1 and not node.keywords
        if wrapped and ast.dump(node.args[0]) == ast.dump(_default_device()):
            return node.args[0]
        return node


def _default_device() -> ast.expr:
    torch = ast.Name("torch", ast.Load())
    return ast.Call(ast.Attribute(torch, "get_default_device", ast.Load()), [], [])


def renamed(text: str, old: str, new: str) -> str:
    """The text with a class under another name, wherever the text says its name. Raises SyntaxError."""
    tree = syntax.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == old:
            node.id = new
        elif isinstance(node, ast.ClassDef) and node.name == old:
            node.name = new
    return ast.unparse(tree)


def joined(modules: dict[str, str], where: str) -> str:
    """Several modules as one text, in the order given: what they import from one another is defined above.

    modules: {name: text}, imported ones first. `from m import a as b` becomes `b = a`; imports of __future__ come
    first. Raises Malformed for `import m`, `from m import *` under another name, and for names that two modules define.
    """
    out, futures, seen = [], set[str](), dict[str, str]()
    for name, text in modules.items():
        tree = _parsed(text, f"{where} {name}.py")
        for defined in _defined(tree):
            if seen.setdefault(defined, name) != name:
                raise Malformed(f"{where}: {seen[defined]}.py and {name}.py both define {defined}")
        body: list[ast.stmt] = []
        for statement in tree.body:
            if isinstance(statement, ast.ImportFrom) and statement.module == _FUTURE:
                futures |= {alias.name for alias in statement.names}
            else:
                body += _flat(statement, modules, f"{where} {name}.py")
        tree.body = body
        out.append(ast.unparse(ast.fix_missing_locations(tree)))
    first = [f"from __future__ import {', '.join(sorted(futures))}"] if futures else []
    return "\n\n".join([*first, *(one for one in out if one)]) + "\n"


def dependencies_first(modules: Mapping[str, str], entry: str) -> dict[str, str]:
    """The modules that `entry` needs, imported ones before those that import them; itself last."""
    found: dict[str, str] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in found or name in above:
            return
        for other in _imported(modules[name]):
            if other in modules:
                visit(other, (*above, name))
        found[name] = modules[name]

    visit(entry, ())
    return found


def _imported(text: str) -> list[str]:
    """The last names of the modules that a text imports; none where it does not parse, which `joined` reports."""
    try:
        tree = syntax.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    found += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return [name.rpartition(".")[2] for name in found]


def _flat(statement: ast.stmt, modules: dict[str, str], where: str) -> list[ast.stmt]:
    """A statement without imports of the modules that are joined."""
    if isinstance(statement, ast.Import) and any(alias.name.partition(".")[0] in modules for alias in statement.names):
        raise Malformed(f"{where} line {statement.lineno}: `import` of a neighbour; only `from ... import` is read")
    if not isinstance(statement, ast.ImportFrom) or (statement.module or "").rpartition(".")[2] not in modules:
        return [statement]
    renamed = [alias for alias in statement.names if alias.asname not in (None, alias.name)]
    return [
        ast.Assign([ast.Name(alias.asname or alias.name, ast.Store())], ast.Name(alias.name, ast.Load()))
        for alias in renamed
    ]


def _defined(tree: ast.Module) -> set[str]:
    """Functions and classes of the module's top level."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def parameters(function: ast.FunctionDef, where: str) -> tuple[list[str], list[str]]:
    """(positional, keyword-only) names of a function's parameters. Raises Malformed for *args and **kwargs."""
    given = function.args
    if given.vararg is not None or given.kwarg is not None:
        raise Malformed(f"{where}: {function.name} takes *args or **kwargs, so its inputs have no names")
    return [one.arg for one in (*given.posonlyargs, *given.args)], [one.arg for one in given.kwonlyargs]


def function_of(text: str, name: str, where: str) -> ast.FunctionDef:
    """The last top-level function of a name. Raises Malformed where there is none."""
    found = [node for node in _parsed(text, where).body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        raise Malformed(f"{where}: no function {name}")
    return found[-1]


def _parsed(text: str, where: str) -> ast.Module:
    try:
        return syntax.parse(text)
    except SyntaxError as error:
        raise Malformed(f"{where} line {error.lineno or 0}: no Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"{where}: no Python: {error}") from None
