"""The tasks that a data set is built from: a folder of `hipwright synth`, or any folder of task files.

Unreadable, missing and changed files are reported as problems, one line of text each.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hipwright.errors import BadInput
from hipwright.evaluation.formats.base import kept_out
from hipwright.evaluation.suite import find_tasks
from hipwright.records import content_key
from hipwright.synth.records import SyntheticTask

TASKS, FILES = "tasks.jsonl", "tasks"


@dataclass(frozen=True)
class DatasetTask:
    """One task. synthetic: its record by synthesis; None for a plain file."""

    name: str
    source: str
    synthetic: SyntheticTask | None = None

    @property
    def key(self) -> str:
        """The content key of the name and the text."""
        return content_key("dataset task", self.name, self.source)


def read_tasks(folder: Path) -> tuple[list[DatasetTask], list[str]]:
    """(the tasks in order, each once; the problems of the folder). Raises BadInput where no task can be read."""
    if not folder.is_dir():
        raise BadInput(f"no such folder of tasks: {folder}")
    if (folder / TASKS).is_file():
        entries, problems = _synthesised(folder)
    else:
        entries, problems = _plain(folder)
    unique: dict[str, DatasetTask] = {}
    for entry in entries:
        unique.setdefault(entry.key, entry)
    if not unique:
        raise BadInput(f"no task in {folder} can be read", hint="; ".join(problems[:3]))
    return list(unique.values()), problems


def _synthesised(folder: Path) -> tuple[list[DatasetTask], list[str]]:
    """The tasks of tasks.jsonl, then the files without a readable line there."""
    entries: list[DatasetTask] = []
    problems: list[str] = []
    for number, line in enumerate((folder / TASKS).read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            made = SyntheticTask.from_json(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            problems.append(f"{TASKS} line {number} cannot be read: {error}")
            continue
        entries.append(DatasetTask(made.draft.name, made.draft.source, made))
        if wrong := _differs(folder / FILES / f"{made.draft.name}.py", made.draft.source):
            problems.append(f"{FILES}/{made.draft.name}.py {wrong}: its text in {TASKS} is used")
    known = {entry.name for entry in entries}
    for path in sorted((folder / FILES).glob("[!_.]*.py")):
        if path.stem not in known:
            problems.append(f"{FILES}/{path.name} has no line in {TASKS}: taken as a plain task")
            _add(entries, problems, path.stem, path)
    return entries, problems


def _plain(folder: Path) -> tuple[list[DatasetTask], list[str]]:
    """The tasks of a folder in any format; those that a licence keeps out of data sets are a problem together."""
    entries: list[DatasetTask] = []
    problems: list[str] = []
    for task in find_tasks(folder):
        if task.problem:
            problems.append(task.problem)
        elif task.text is not None:
            entries.append(DatasetTask(task.name.rpartition("/")[2], task.text))
        else:
            _add(entries, problems, task.path.stem, task.path)
    reasons = [why for entry in entries if (why := kept_out(entry.source))]
    problems += [f"{count} tasks are left out of data sets: {why}" for why, count in Counter(reasons).items()]
    return [entry for entry in entries if not kept_out(entry.source)], problems


def _add(entries: list[DatasetTask], problems: list[str], name: str, path: Path) -> None:
    try:
        entries.append(DatasetTask(name, path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path.name} cannot be read: {error}")


def _differs(path: Path, source: str) -> str:
    try:
        return "" if path.read_text(encoding="utf-8") == source else "differs"
    except FileNotFoundError:
        return "is missing"
    except (OSError, UnicodeDecodeError):
        return "cannot be read"
