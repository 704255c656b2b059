"""Structure of the code in six figures, each with its limit: `python scripts/house.py [--json] [--list]`.

Counted over src, benchmarks, scripts and tests, without the folders of DATA (candidates and task files are data, not
modules). Exit code 1 when a limit is passed; --list names every place that counts.

- shared class names: public top-level classes of src that have a name in common, as a share of all
- fmt: skip: lines that the formatter is told to leave alone
- import circles: groups of modules of src that import one another, imports in functions included
- long files, long functions, large folders: more than 350 lines, 60 lines, 20 modules (`__init__.py` not counted)
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "benchmarks", "scripts", "tests")
DATA = (
    "src/hipwright/audit/corpus",
    "benchmarks/arithmetic",
    "benchmarks/kernels",
    "benchmarks/large",
    "benchmarks/operators",
    "benchmarks/published",
    "benchmarks/ranks",
    "benchmarks/real",
    "benchmarks/hazards",
    "benchmarks/serving",
    "benchmarks/tasks",
    "tests/acceptance/tasks",
    "tests/bad_input",
    "tests/modelnew/candidates",
    "tests/modelnew/tasks",
    "tests/programs",
    "tests/task/files",
)
FILE_LINES, FUNCTION_LINES, FOLDER_MODULES = 350, 60, 20


@dataclass(frozen=True)
class Figure:
    """One figure: its value, the most it may be, and the places that it counts."""

    name: str
    value: float
    limit: float
    places: list[str]


def main() -> int:
    """Print the figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--json", action="store_true", help="one object instead of a table")
    options.add_argument("--list", action="store_true", help="the places behind each figure too")
    asked = options.parse_args()
    gc.disable()  # syntax trees are many objects without cycles: collecting takes a third of the time
    found = figures()
    if asked.json:
        print(json.dumps({f.name: {"value": f.value, "limit": f.limit, "places": f.places} for f in found}))
    else:
        for figure in found:
            print(f"{figure.name:22}{figure.value:8.4g}   at most {figure.limit:g}")
            for place in figure.places if asked.list else ():
                print(f"    {place}")
    return int(any(figure.value > figure.limit for figure in found))


def figures() -> list[Figure]:
    """All six."""
    shared, total = shared_classes()
    return [
        Figure("shared class names, %", round(100 * len(shared) / max(total, 1), 2), 3, shared),
        Figure("fmt: skip", len(skipped := unformatted()), 50, skipped),
        Figure("import circles", len(circles := import_circles()), 0, circles),
        Figure("long files", len(files := long_files()), 0, files),
        Figure("long functions", len(functions := long_functions()), 0, functions),
        Figure("large folders", len(large := large_folders()), 0, large),
    ]


@cache
def sources() -> dict[Path, str]:
    """The text of every module by its path below the root."""
    found = {}
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT)
        if not any(name.is_relative_to(data) for data in DATA):
            found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of one module."""
    return ast.parse(sources()[path])


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node, at any depth; expressions, which are many more, are passed over."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, ())
        for one in inner if isinstance(inner, list) else ():
            yield one
            yield from statements(one)


def package() -> Iterator[Path]:
    """The modules of src."""
    return (path for path in sources() if path.parts[0] == "src")


def shared_classes() -> tuple[list[str], int]:
    """(public classes that share their name, each with its file; how many public classes there are)."""
    named: dict[str, list[Path]] = defaultdict(list)
    for path in package():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                named[node.name].append(path)
    shared = [f"{name} in {path}" for name, paths in sorted(named.items()) if len(paths) > 1 for path in paths]
    return shared, sum(len(paths) for paths in named.values())


def unformatted() -> list[str]:
    """Lines with `fmt: skip` or `fmt: off`."""
    marks = ("fmt: " + "skip", "fmt: " + "off")
    return [
        f"{path}:{number}"
        for path, text in sources().items()
        for number, line in enumerate(text.splitlines(), 1)
        if any(mark in line for mark in marks)
    ]


def long_files() -> list[str]:
    """Files over FILE_LINES."""
    return [f"{path}: {lines}" for path, text in sources().items() if (lines := text.count("\n")) > FILE_LINES]


def long_functions() -> list[str]:
    """Functions over FUNCTION_LINES, decorators not counted."""
    return [
        f"{path}:{node.lineno} {node.name}: {lines}"
        for path in sources()
        for node in statements(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]


def large_folders() -> list[str]:
    """Folders with more than FOLDER_MODULES modules."""
    count = Counter(path.parent for path in sources() if path.name != "__init__.py")
    return [f"{folder}: {modules}" for folder, modules in sorted(count.items()) if modules > FOLDER_MODULES]


def import_circles() -> list[str]:
    """Groups of modules that import one another (strongly connected components, Tarjan 1972)."""
    graph = imports()
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in graph[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            at = stack.index(module)
            found.append(stack[at:])
            del stack[at:]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 1000))
    for module in graph:
        if module not in order:
            visit(module)
    return [", ".join(sorted(group)) for group in found if len(group) > 1]


def imports() -> dict[str, list[str]]:
    """The modules of the package that each module of it imports, anywhere in its text."""
    modules = {_module(path): path for path in package()}
    return {name: sorted(_imported(name, tree(path), modules) - {name}) for name, path in modules.items()}


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(name: str, module: ast.Module, modules: dict[str, Path]) -> set[str]:
    found = set()
    for node in statements(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(name, modules[name], node)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in modules else base)
    return found & set(modules)


def _base(name: str, path: Path, node: ast.ImportFrom) -> str:
    """The absolute name of the module that a `from` import names."""
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    keep = len(parts) - node.level + (path.name == "__init__.py")
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


if __name__ == "__main__":
    sys.exit(main())
