"""The files that the server may open: those under its root, with symbolic links resolved."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hipwright import syntax
from hipwright.errors import BadInput

MOST_BYTES = 1 << 20  # of a task or a program
MOST_TASKS = 300


def inside(root: Path, given: str, what: str) -> Path:
    """The real path of `given`, relative to the root or absolute. Raises BadInput for one outside the root."""
    try:
        path = (root / given).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"the {what} {given!r} is no path: {error}") from error
    if not path.is_relative_to(root):
        raise BadInput(
            f"the {what} {given!r} is outside {root}", hint="`hipwright mcp --root DIR` says what may be read"
        )
    return path


def task_file(root: Path, given: str) -> Path:
    """A task file under the root: a regular file of at most 1 MiB. Raises BadInput otherwise."""
    path = inside(root, given, "task")
    if not path.is_file():
        raise BadInput(f"no such task file: {given}", hint="list_tasks shows what there is")
    if path.stat().st_size > MOST_BYTES:
        raise BadInput(f"the task {given} is larger than 1 MiB")
    return path


def task_text(path: Path) -> str:
    """The text of a task file. BadInput when it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise BadInput(f"cannot read the task {path.name}: {error}") from error


def tasks(root: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """(path below the root, one line of description) of the tasks of a folder, or of the folders in it.

    Tasks are recognised by what a file defines; nothing is executed.
    """
    places = [folder, *sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))]
    places += [p / level for p in places for level in ("level1", "level2", "level3", "level4") if (p / level).is_dir()]
    seen: set[Path] = set()
    for path in (path for place in places if _within(root, place) for path in sorted(place.glob("*.py"))):
        if path.name.startswith(("_", ".")) or not _within(root, path):
            continue
        real = path.resolve()
        if real in seen or not real.is_file():
            continue
        seen.add(real)
        if real.stat().st_size <= MOST_BYTES and (about := described(real)) is not None:
            yield str(path.relative_to(root)), about


def described(path: Path) -> str | None:
    """The first line of a task's docstring, or of its Model's; None for a file that is no task."""
    try:
        tree = syntax.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError, OSError):
        return None
    names = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    model = names.get("Model")
    if not isinstance(model, ast.ClassDef) or not {"get_inputs", "get_input_groups"} & names.keys():
        return None
    text = ast.get_docstring(tree) or ast.get_docstring(model) or ""
    return " ".join(text.strip().split("\n\n")[0].split())[:200]


def _within(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):
        return False
