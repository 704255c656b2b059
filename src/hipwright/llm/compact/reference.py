"""The short form of a reference: what its forward computes and on which tensors, without boilerplate.

Read from the syntax tree; nothing is executed. One line an input ("x f32 1024 1000"), then the statements of forward
with module prefixes left out, then those of the constructor if it has any. A text of another form comes back trimmed.
"""

from __future__ import annotations

import ast
import re
import textwrap

from hipwright import syntax

DTYPES = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "bool": "b8",
    "half": "f16",
    "long": "i64",
    "float": "f32",
    "double": "f64",
}
MAKERS = {"rand", "randn", "zeros", "ones", "empty", "full"}
LONGEST = 4000  # characters of a text that could not be read

_PREFIX = re.compile(r"\b(?:torch\.nn\.functional|torch\.nn|torch|nn|F)\.(?=[A-Za-z_])")


def prompt(source: str) -> str:
    """The short form of a file in the KernelBench form. Deterministic; never executes and never raises."""
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _trimmed(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)} if model else {}
    if "forward" not in methods or "get_inputs" not in functions:
        return _trimmed(source)
    names = [a.arg for a in methods["forward"].args.args[1:]]
    lines = _inputs(functions["get_inputs"], names, _constants(tree))
    lines += _body(methods["forward"])
    if "__init__" in methods:
        made = [line for line in _body(methods["__init__"]) if not line.startswith("super(")]
        given = _returned(functions["get_init_inputs"]) if "get_init_inputs" in functions else []
        lines += ["init " + ", ".join(_short(ast.unparse(e)) for e in given)] if given else []
        lines += [f"init {line}" for line in made]
    return "\n".join(lines) + "\n"


def _trimmed(source: str) -> str:
    lines = [line.rstrip() for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return textwrap.dedent("\n".join(lines))[:LONGEST] + "\n"


def _constants(tree: ast.Module) -> dict[str, str]:
    """Plain numbers at the top level: sizes by name."""
    return {
        node.targets[0].id: ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    """The elements of the list that a function returns, locals put in place."""
    known: dict[str, ast.expr] = {}
    for node in function.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = node.value
        if isinstance(node, ast.Return) and isinstance(node.value, (ast.List, ast.Tuple)):
            return [known.get(e.id, e) if isinstance(e, ast.Name) else e for e in node.value.elts]
    return []


def _inputs(function: ast.FunctionDef, names: list[str], constants: dict[str, str]) -> list[str]:
    """One line an input; sizes that have a name at the top level are put in place."""
    lines = []
    for number, made in enumerate(_returned(function)):
        name = names[number] if number < len(names) else f"input{number}"
        lines.append(f"{name} {_tensor(made, constants)}")
    return lines


def _tensor(made: ast.expr, constants: dict[str, str]) -> str:
    """ "f32 1024 1000" for a call that makes a tensor; else the expression."""
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in MAKERS:
        dtype = next((ast.unparse(k.value) for k in made.keywords if k.arg == "dtype"), "torch.float32")
        sizes = made.args
        if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
            sizes = sizes[0].elts
        texts = [constants.get(text, text) for text in map(ast.unparse, sizes)]
        scale = "" if made.func.attr == "randn" else f" {made.func.attr}"
        bare = dtype.removeprefix("torch.")
        return " ".join([DTYPES.get(bare, bare), *texts]) + scale
    return _short(ast.unparse(made))


def _body(function: ast.FunctionDef) -> list[str]:
    """Statements without docstrings, annotations and prefixes."""
    statements = function.body
    if statements and isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        statements = statements[1:]
    return [_short(line) for statement in statements for line in ast.unparse(statement).splitlines()]


def _short(text: str) -> str:
    return _PREFIX.sub("", text)
