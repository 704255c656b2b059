"""Copies and near copies of tasks: of a benchmark's, or within one data set (docs/hygiene.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hipwright.api.data.hooks import processors
from hipwright.api.files import prepare_folder
from hipwright.api.workbench import require_sandbox
from hipwright.dataset.overlap import OverlapReport, overlap
from hipwright.dataset.store import PAIRS, BadRow, pair_line, read_pairs, replace_file
from hipwright.dataset.tasks import DatasetTask, read_tasks
from hipwright.errors import BadInput
from hipwright.events import Listener, silent


@dataclass(frozen=True)
class DatasetOverlap:
    """The overlaps found.

    kept: the number of rows of the other tasks that were written, None where none were requested.
    """

    found: OverlapReport
    bad: Sequence[BadRow]
    kept: int | None

    @property
    def share(self) -> float:
        """The share of the tasks that overlap."""
        return len(self.found.found) / self.found.tasks if self.found.tasks else 0.0

    def summary(self) -> dict[str, Any]:
        """The object that `dataset overlap --json` fingerprints."""
        found = self.found
        return {**found.to_dict(), "found": list(found.found), "share": round(self.share, 4), "rows_kept": self.kept}


def find_overlap(
    data: Path,
    against: Sequence[Path] = (),
    out: Path | None = None,
    *,
    workers: int | None = None,
    unsafe: bool = False,
    listener: Listener = silent,
) -> DatasetOverlap:
    """Compares the tasks of `data` (a data set, a file of rows, or a folder of tasks) with folders, or with each other.

    out: a file for the rows of the tasks without an overlap. Events for the listener: "planned" {total, done}, and
    "compared" {done, count, task}.
    """
    require_sandbox(unsafe)
    bad: list[BadRow] = []
    tasks = {name: entry.synthetic or entry.source for name, entry in named_tasks(data, bad).items()}
    if out is not None and not _is_data(data):
        raise BadInput("--out writes rows, and a folder of tasks has none", hint="name a data set, or leave --out")
    listener("planned", {"total": len(tasks), "done": 0})
    found = overlap(tasks, against, workers=workers or processors(), unsafe=unsafe, listener=listener)
    kept = _write_rest(data, set(found.found), out) if out is not None else None
    return DatasetOverlap(found, bad, kept)


def named_tasks(data: Path, bad: list[BadRow]) -> dict[str, DatasetTask]:
    """The tasks of a data set's rows, or of a folder, by unique names. Unreadable lines are added to `bad`."""
    if _is_data(data):
        entries = {(pair.task_name, pair.task_source): None for pair in read_pairs(data, bad)}
        listed = [DatasetTask(name, source) for name, source in entries]
    else:
        listed = read_tasks(data)[0]
    seen: Counter[str] = Counter()
    found: dict[str, DatasetTask] = {}
    for entry in listed:
        seen[entry.name] += 1
        found[entry.name if seen[entry.name] == 1 else f"{entry.name}~{seen[entry.name]}"] = entry
    return found


def _is_data(path: Path) -> bool:
    return path.is_file() or (path / PAIRS).is_file()


def _write_rest(data: Path, gone: set[str], out: Path) -> int:
    """Writes the rows of the tasks without an overlap; returns how many."""
    named = {(entry.name, entry.source): name for name, entry in named_tasks(data, []).items()}
    prepare_folder(out.parent)
    kept = 0

    def rows() -> Iterator[bytes]:
        nonlocal kept
        for pair in read_pairs(data):
            if named[pair.task_name, pair.task_source] not in gone:
                kept += 1
                yield pair_line(pair)

    replace_file(out, rows())
    return kept
