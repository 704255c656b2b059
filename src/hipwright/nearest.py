"""Near names for a name that does not exist: "did you mean"."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

_HUB = re.compile(r"[\w.-]+/[\w.-]+(?<!\.py)")
_MOST = 2000  # entries of a folder that are looked at
_SHOWN = 5


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most like this one; None where none is near.

    >>> nearest("budgt", ["budget", "seed"]), nearest("x", ["budget"])
    ('budget', None)
    """
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ ": did you mean X?" to follow a message; "" where no name is near."""
    found = nearest(name, known)
    return f": did you mean {found}?" if found else ""


KINDS = {
    "a notebook": (".ipynb",),
    "CUDA or HIP source": (".cu", ".cuh", ".hip", ".cpp", ".cc", ".h"),
    "a file of weights": (".pt", ".pth", ".bin", ".safetensors", ".ckpt", ".gguf"),
    "an exported graph": (".onnx", ".pt2"),
}
"""What is often given for a Python file, by suffix."""
_HINTS = {
    "a notebook": "in a cell: hipwright.optimize(module, example_inputs); or save the module as a .py file",
    "CUDA or HIP source": "it is a kernel: hipwright optimize TASK.py --start {path}, hipwright eval TASK.py {path}",
    "a file of weights": "name the .py file that builds the module; it may load them",
    "an exported graph": "name the .py file of the module that it was exported from",
}


def kind_of_file(path: Path) -> str | None:
    """What a path is by its suffix, where a Python file is wanted; None for any other."""
    return next((kind for kind, suffixes in KINDS.items() if path.suffix.lower() in suffixes), None)


def kind_hint(path: Path, kind: str) -> str:
    """What to do with a file of a kind of KINDS."""
    return _HINTS[kind].format(path=path)


def file_hint(path: Path, what: str) -> str:
    """What to do about a path that is no file: a near name, the files of a folder, or what takes this kind of file."""
    if path.is_dir():
        return _of_folder(path, what)
    parent = path.parent
    if parent.is_dir():
        near = nearest(path.name, _names(parent))
        if near is None and not path.suffix:
            near = next((name for name in _names(parent) if Path(name).stem == path.name), None)
        return f"did you mean {parent / near}?" if near else ""
    if what == "task" and _HUB.fullmatch(str(path)):
        return "if it is a Hugging Face id: `hipwright model SCRIPT.py:FACTORY`, with a factory that loads it"
    near = nearest(parent.name, _names(parent.parent)) if parent.parent.is_dir() else None
    return f"there is no folder {parent}" + (f": did you mean {parent.parent / near}?" if near else "")


def _of_folder(folder: Path, what: str) -> str:
    files = sorted(name for name in _names(folder) if name.endswith(".py"))
    if not files:
        return f"it is a folder without .py files; name the {what}'s file"
    shown = ", ".join(files[:_SHOWN]) + (", ..." if len(files) > _SHOWN else "")
    judged = "; `hipwright bench` judges a whole folder" if what == "task" else ""
    return f"it is a folder; name one of its files: {shown}{judged}"


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one, _ in zip(folder.iterdir(), range(_MOST), strict=False)]
    except OSError:
        return []
