"""A folder of tasks in the KernelBench form, and the candidates that belong to them.

Tasks: DIR/*.py and DIR/levelN/*.py, in order of name (numbers by value); in a folder that has neither, DIR/FAMILY/*.py.
Names that begin with "_" or "." are ignored.
Instead of a folder, a suite's file or name (`hipwright.evaluation.task_suite`) stands for its tasks.
Candidates: <task stem>.py, in one folder or in the same levelN folders, or KernelBench's sample names
level_1_problem_3_sample_0_kernel.py, where 3 is the number that begins the task's name (3_Some_name.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.evaluation.task_suite import list_suites, open_suite, task_name

_LEVEL = re.compile(r"level_?(\d+)", re.IGNORECASE)
_NUMBER = re.compile(r"(\d+)_")
_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel")


@dataclass(frozen=True)
class BenchTask:
    """One task. name: its path below the suite without ".py"; level, number: from KernelBench's names, if any."""

    name: str
    path: Path
    level: int | None
    number: int | None


@dataclass(frozen=True)
class CandidateFile:
    """One candidate of a task. sample: its number among several."""

    task: str
    path: Path
    sample: int = 0


@dataclass
class Matched:
    """candidates: by task, in order of sample. strangers: files that belong to no task."""

    candidates: dict[str, list[CandidateFile]] = field(default_factory=dict)
    strangers: list[Path] = field(default_factory=list)


def find_tasks(folder: Path, level: int | None = None) -> list[BenchTask]:
    """The tasks of a folder, or of a suite by its file or name; level: only those of folder/levelN.

    Raises BadInput where there are none.
    """
    if not folder.is_dir():
        return _suite_tasks(folder, level)
    levels = {number: path for path in folder.iterdir() if path.is_dir() and (number := _level(path.name)) is not None}
    if level is not None and level not in levels:
        known = ", ".join(f"level{n}" for n in sorted(levels)) or "no levelN folders"
        raise BadInput(f"{folder} has no level {level}", hint=f"it has {known}")
    chosen = {level: levels[level]} if level is not None else levels
    found = [] if level is not None else [_task(folder, path, _level(folder.name)) for path in _files(folder)]
    for number in sorted(chosen):
        found += [_task(folder, path, number) for path in _files(chosen[number])]
    if not found and not levels:
        found = [_task(folder, path, None) for family in _families(folder) for path in _files(family)]
    if not found:
        raise BadInput(
            f"no tasks in {folder}",
            hint="tasks are files *.py, in the folder itself, in level1, level2, ..., or in a folder for each family",
        )
    return found


def _suite_tasks(place: Path, level: int | None) -> list[BenchTask]:
    """The tasks of a suite. place: its file, or its name. BadInput where there is no such suite."""
    path = place if place.suffix == ".toml" and place.is_file() else list_suites().get(str(place))
    if path is None:
        known = f"suites by name: {', '.join(sorted(list_suites()))}" if list_suites() else ""
        raise BadInput(f"no such folder of tasks: {place}", hint=known)
    if level is not None:
        raise BadInput(f"the suite {place} has no levels", hint="leave --level out")
    return [BenchTask(task_name(path), path, None, _number(path)) for path in open_suite(path).paths]


def match_candidates(folder: Path, tasks: Sequence[BenchTask]) -> Matched:
    """The files of a folder that are candidates of `tasks`.

    Raises BadInput for a missing folder or one without candidates.
    """
    if not folder.is_dir():
        raise BadInput(f"no such folder of candidates: {folder}")
    levels = [path for path in folder.iterdir() if path.is_dir() and _level(path.name) is not None]
    files: list[tuple[Path, int | None]] = [(path, None) for path in _files(folder)]
    files += [
        (path, _level(sub.name)) for sub in sorted(levels, key=lambda p: _natural(p.name)) for path in _files(sub)
    ]
    matched = Matched()
    for path, level in files:
        candidate = _match(path, level, tasks)
        if candidate is None:
            matched.strangers.append(path)
        else:
            matched.candidates.setdefault(candidate.task, []).append(candidate)
    for found in matched.candidates.values():
        found.sort(key=lambda candidate: (candidate.sample, _natural(candidate.path.name)))
    if not matched.candidates:
        raise BadInput(
            f"no file of {folder} belongs to a task",
            hint="name candidates like their task, or level_1_problem_3_sample_0_kernel.py",
        )
    return matched


def _match(path: Path, level: int | None, tasks: Sequence[BenchTask]) -> CandidateFile | None:
    if sample := _SAMPLE.fullmatch(path.stem):
        of_level, number, index = map(int, sample.groups())
        mine = [task for task in tasks if task.number == number and task.level in (None, of_level)]
        return CandidateFile(mine[0].name, path, index) if mine else None
    mine = [task for task in tasks if task.path.stem == path.stem and (level is None or task.level in (None, level))]
    if len(mine) > 1:
        raise BadInput(f"{path} could belong to {mine[0].name} or {mine[1].name}", hint="put it in a folder levelN")
    return CandidateFile(mine[0].name, path) if mine else None


def _task(root: Path, path: Path, level: int | None) -> BenchTask:
    return BenchTask(path.relative_to(root).with_suffix("").as_posix(), path, level, _number(path))


def _number(path: Path) -> int | None:
    """The number that begins a file's name, as in KernelBench's."""
    found = _NUMBER.match(path.stem)
    return int(found[1]) if found else None


def _files(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("*.py") if path.is_file() and not path.name.startswith(("_", "."))]
    return sorted(found, key=lambda path: _natural(path.stem))


def _families(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(("_", ".")))


def _level(name: str) -> int | None:
    found = _LEVEL.fullmatch(name)
    return int(found[1]) if found else None


def _natural(text: str) -> list[tuple[int, str]]:
    """A sort key by which 2_x comes before 10_x."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text) if part]
