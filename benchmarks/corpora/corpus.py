"""A corpus: the tasks that are made of one package, and a fixed sample of them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from hipwright.errors import BadInput


@dataclass(frozen=True)
class CorpusTask:
    """One task. name: its file's, without .py; family: what it is made of, e.g. an operator or an architecture's."""

    name: str
    family: str
    text: str


class Corpus(Protocol):
    """One kind of source.

    packages: what has to be installed, by the names of distributions; imported: modules that every task imports.
    """

    packages: tuple[str, ...]
    imported: tuple[str, ...]

    def tasks(self, real: bool) -> Iterator[CorpusTask]:
        """All tasks, in a fixed order. real: at the sizes that users run, for a GPU, where the corpus has others."""
        ...


def require(packages: Sequence[str]) -> dict[str, str]:
    """The versions of installed distributions. Raises BadInput for one that is missing."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise BadInput(f"{name} is not installed", hint="pip install -e '.[corpora]'") from None
    return found


def listed_tasks(source: Corpus, versions: dict[str, str], real: bool, folder: Path) -> list[CorpusTask]:
    """All tasks of a corpus, from a file in `folder` where they were listed before: torch's operators have tens of
    thousands of sample inputs, which take a minute. Another version of a package, or of this code, lists them again.
    """
    written = [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.rglob("*.py"))]
    kept = folder / f"{_hash(json.dumps([type(source).__name__, versions, real, written]))}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        return [CorpusTask(**task) for task in json.loads(kept.read_text(encoding="utf-8"))]
    tasks = list(source.tasks(real))
    with contextlib.suppress(OSError):  # a folder that cannot be written keeps nothing
        folder.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(list(map(asdict, tasks))), encoding="utf-8")
        part.replace(kept)
    return tasks


def sample_of(tasks: Sequence[CorpusTask], size: int | None) -> list[CorpusTask]:
    """`size` tasks, the same on every machine: families in the order of a hash, one task of each in turn."""
    if size is None or size >= len(tasks):
        return list(tasks)
    families: dict[str, list[CorpusTask]] = {}
    for task in sorted(tasks, key=lambda task: _hash(task.name)):
        families.setdefault(task.family, []).append(task)
    order = sorted(families.values(), key=lambda family: _hash(family[0].family))
    deepest = max(map(len, order), default=0)
    return [family[turn] for turn in range(deepest) for family in order if turn < len(family)][:size]


def write_tasks(tasks: Sequence[CorpusTask], folder: Path) -> None:
    """Writes the task files into a folder; a file that already holds the same text is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        path = folder / f"{task.name}.py"
        if not path.exists() or path.read_text(encoding="utf-8") != task.text:
            path.write_text(task.text, encoding="utf-8")


def file_name(*words: str) -> str:
    """Words joined to a name of a file: letters, digits and underscores, none of these first, which would hide it from
    suites."""
    joined = "_".join(word for word in words if word)
    name = "".join(letter if letter.isalnum() else "_" for letter in joined)
    return f"op{name}" if name.startswith("_") else name


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
