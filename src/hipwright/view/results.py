"""Folders of results beside the archive: what `bench`, `audit` and `train` wrote with --out, below given roots."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hipwright.errors import BadInput
from hipwright.records import content_key

Kind = Literal["bench", "audit", "training"]
MARKS: dict[str, Kind] = {"rows.jsonl": "bench", "audit.json": "audit", "metrics.jsonl": "training"}
"""The file by which a folder of results is known; its time is that of the results."""
TRAINING_TOP = ("run.json", "work.json", "evaluation.json")
"""A folder with one of these is one training, with all that lies below it."""
DEEPEST, MOST_FOLDERS = 6, 5000


@dataclass(frozen=True)
class ResultFolder:
    """One folder of results. key: its address in the application; changed: Unix time of the last change."""

    key: str
    kind: Kind
    path: Path
    changed: float

    @property
    def name(self) -> str:
        """The folder's name with its parent's."""
        return "/".join(self.path.parts[-2:])


class ResultFolders:
    """The folders of results below the roots, looked for at each request. BadInput: a root is no folder."""

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        for root in roots:
            if not root.is_dir():
                raise BadInput(f"no such folder: {root}", hint="--results DIR names a folder with results")
        self.roots = [root.resolve() for root in roots]

    def all(self) -> list[ResultFolder]:
        """Every folder, the last changed first."""
        found = {one.path: one for root in self.roots for one in _below(root)}
        return sorted(found.values(), key=lambda one: -one.changed)

    def get(self, key: str) -> ResultFolder:
        """The folder with this key. BadInput without one."""
        for one in self.all():
            if one.key == key:
                return one
        raise BadInput(f"there are no results {key!r}", hint="/results lists them")

    def state(self, key: str) -> float:
        """When the results changed last: what tells that a page of them is out of date."""
        return self.get(key).changed


def _below(root: Path) -> Iterator[ResultFolder]:
    """Walks the folders below a root, itself included; neither links nor hidden folders are followed."""
    for count, (place, folders, files) in enumerate(os.walk(root)):
        if count >= MOST_FOLDERS:
            return
        folder = Path(place)
        deep = len(folder.relative_to(root).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if deep < DEEPEST else []
        marks = [name for name in MARKS if name in files]
        if any(name in files for name in TRAINING_TOP) and (logs := _logs(folder)):
            folders[:] = []
            yield _result("training", folder, [*logs, *(folder / name for name in TRAINING_TOP if name in files)])
        elif marks:
            yield _result(MARKS[marks[0]], folder, [folder / name for name in (*marks, "result.json")])


def _logs(folder: Path) -> list[Path]:
    return [Path(place) / "metrics.jsonl" for place, _, files in os.walk(folder) if "metrics.jsonl" in files]


def _result(kind: Kind, folder: Path, files: Sequence[Path]) -> ResultFolder:
    changed = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
    return ResultFolder(content_key(str(folder))[:12], kind, folder, changed)


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object of a file; {} without the file. BadInput where it cannot be read."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}
