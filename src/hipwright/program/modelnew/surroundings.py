"""Static rules on what a ModelNew file may learn about the process that runs it.

A judged call and an ordinary run of the file differ in arguments, environment, files, other modules, cores and
terminals. A file that reads none of them computes the same in both.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

Found = tuple[str, int, str]
"""(rule, line, why)."""

_MEMBERS = {
    "sys": (
        "argv orig_argv path executable flags _xoptions stdin __stdin__ meta_path path_hooks "
        "path_importer_cache prefix exec_prefix stdout.isatty stdout.fileno stdout.name stderr.isatty "
        "stderr.fileno stderr.name"
    ),
    "os": (
        "getcwd getcwdb cpu_count process_cpu_count sched_getaffinity sysconf getpid getppid getpgid "
        "getpgrp getsid getuid geteuid getlogin getloadavg isatty ttyname times uname get_terminal_size "
        "stat fstat lstat access statvfs environb"
    ),
    "platform": ("node uname platform processor"),
    "torch": ("get_num_threads get_num_interop_threads"),
}
PROCESS = frozenset(f"{module}.{name}" for module, names in _MEMBERS.items() for name in names.split())
"""Paths that tell one process from another."""
NAMES = frozenset(("__file__", "__spec__", "__loader__", "__package__", "__path__"))
"""Names, and attributes of modules and classes, that tell where the file runs."""
ENVIRONMENT_CALLS = frozenset(("get", "setdefault", "pop", "update"))  # judged by the variable they name
CLOSED = frozenset(("sys", "os", "platform", "inspect", "builtins"))
"""Modules whose members are only reached by their written names."""


def sniffing(tree: ast.Module, names: Mapping[str, str], own: Collection[str]) -> Iterator[Found]:
    """What the file may learn about its process. names: paths of imported names; own: its functions and classes."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield from _read(node, parents.get(id(node)), names)
        elif isinstance(node, ast.Call):
            yield from _looked_up(node, names)
        elif isinstance(node, ast.If) and _asks_for_main(node.test):
            yield from _redefined(node, own)


def _read(node: ast.Name | ast.Attribute, parent: ast.AST | None, names: Mapping[str, str]) -> Iterator[Found]:
    path = _path(node, names)
    last = node.id if isinstance(node, ast.Name) else node.attr
    if last in NAMES or last == "__module__":
        yield "E4", node.lineno, f"reads {last}, which tells where the file runs"
    elif path == "__name__" and not (parent is not None and _asks_for_main(parent)):
        yield "E4", node.lineno, 'reads __name__ other than in `__name__ == "__main__"`'
    elif path in PROCESS and not (path == "sys.path" and _attribute(parent) in ("append", "insert")):
        yield "E4", node.lineno, f"uses {path}: the process is not the candidate's business"
    elif path == "os.environ" and not (isinstance(parent, ast.Subscript) or _attribute(parent) in ENVIRONMENT_CALLS):
        yield "E4", node.lineno, "reads the whole environment"
    elif isinstance(node, ast.Name) and path in CLOSED and node.id in names and not isinstance(parent, ast.Attribute):
        yield "E6", node.lineno, f"passes the module {path} on: write the names that are used"
    elif path.endswith(".__dict__") and path.split(".")[0] in CLOSED:
        yield "E6", node.lineno, f"reads {path}"


def _looked_up(node: ast.Call, names: Mapping[str, str]) -> Iterator[Found]:
    """`getattr` and `vars` on a closed module."""
    if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars", "dir") and node.args:
        owner = _path(node.args[0], names)
        if owner.split(".")[0] in CLOSED and owner.split(".")[0] in names.values():
            yield "E6", node.lineno, f"{node.func.id} on {owner}: write the names that are used"


def _redefined(node: ast.If, own: Collection[str]) -> Iterator[Found]:
    """What a block for the main program changes: it does not run where the file is judged."""
    for inner in (part for statement in node.body for part in ast.walk(statement)):
        name = inner.id if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) else ""
        if isinstance(inner, (ast.FunctionDef, ast.ClassDef)):
            name = inner.name
        elif isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            name = _path(inner, {}).split(".")[0]
        if name == "ModelNew" or (name in own and not isinstance(inner, ast.FunctionDef)):
            line = getattr(inner, "lineno", node.lineno)
            yield "E4", line, "changes the file's own code only where it is the main program"


def _asks_for_main(node: ast.AST) -> bool:
    """Whether this is `__name__ == "__main__"`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == "__name__"
        and [type(op) for op in node.ops] == [ast.Eq]
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value == "__main__"
    )


def _attribute(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _path(node: ast.expr, names: Mapping[str, str]) -> str:
    """The dotted path of a chain of attributes from a name; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([names.get(node.id, node.id), *reversed(parts)]) if isinstance(node, ast.Name) else ""
