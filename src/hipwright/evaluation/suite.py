"""A folder of tasks, and the candidates that belong to them.

Tasks: in the KernelBench form, or in another format, found by the folder's layout (`hipwright.evaluation.formats`).
Instead of a folder, a suite's file or name (`hipwright.evaluation.task_suite`) stands for its tasks.
Candidates: <task stem>.py, in one folder or in the same levelN folders, or KernelBench's sample names
level_1_problem_3_sample_0_kernel.py, where 3 is the number that begins the task's name (3_Some_name.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hipwright.errors import BadInput
from hipwright.evaluation.formats.base import BenchTask, CandidateFile
from hipwright.evaluation.formats.kernelbench import KERNELBENCH, level_of, natural, number_of, python_files
from hipwright.evaluation.formats.registry import format_named, format_of
from hipwright.evaluation.task_suite import list_suites, open_suite, task_name

_SAMPLE = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel")


@dataclass
class Matched:
    """candidates: by task, in order of sample. strangers: files that belong to no task."""

    candidates: dict[str, list[CandidateFile]] = field(default_factory=dict)
    strangers: list[Path] = field(default_factory=list)


def find_tasks(folder: Path, level: int | None = None, form: str | None = None) -> list[BenchTask]:
    """The tasks of a folder, or of a suite by its file or name; malformed ones with their `problem`.

    level: only those of folder/levelN; form: the name of the folder's format, None to find it. Raises BadInput where
    there are no tasks, where the folder has several formats, and for a level of a format without levels.
    """
    if not folder.is_dir():
        return _suite_tasks(folder, level)
    found = format_named(form) if form is not None else format_of(folder)
    if found is KERNELBENCH:
        tasks = KERNELBENCH.load(folder, level)
    elif level is not None:
        raise BadInput(f"{folder} is in the format {found.name}, which has no levels", hint="leave --level out")
    else:
        tasks = list(found.load(folder))
    if not tasks and found is KERNELBENCH:
        raise BadInput(
            f"no tasks in {folder}",
            hint="tasks are files *.py, in the folder itself, in level1, level2, ..., or in a folder for each family; "
            "docs/task-formats.md has other formats",
        )
    if not tasks:
        raise BadInput(f"no tasks in {folder}", hint=f"{found.name} has {found.layout}")
    return [replace(task, form=found.name) for task in tasks]


def _suite_tasks(place: Path, level: int | None) -> list[BenchTask]:
    """The tasks of a suite. place: its file, or its name. BadInput where there is no such suite."""
    path = place if place.suffix == ".toml" and place.is_file() else list_suites().get(str(place))
    if path is None:
        known = f"suites by name: {', '.join(sorted(list_suites()))}" if list_suites() else ""
        raise BadInput(f"no such folder of tasks: {place}", hint=known)
    if level is not None:
        raise BadInput(f"the suite {place} has no levels", hint="leave --level out")
    return [BenchTask(task_name(path), path, None, number_of(path)) for path in open_suite(path).paths]


def match_candidates(folder: Path, tasks: Sequence[BenchTask]) -> Matched:
    """The files of a folder that are candidates of `tasks`.

    Raises BadInput for a missing folder or one without candidates.
    """
    if not folder.is_dir():
        raise BadInput(f"no such folder of candidates: {folder}")
    if answers := _answers(folder, tasks):
        return answers
    levels = [path for path in folder.iterdir() if path.is_dir() and level_of(path.name) is not None]
    files: list[tuple[Path, int | None]] = [(path, None) for path in python_files(folder)]
    files += [
        (path, level_of(sub.name))
        for sub in sorted(levels, key=lambda p: natural(p.name))
        for path in python_files(sub)
    ]
    matched = Matched()
    for path, level in files:
        candidate = _match(path, level, tasks)
        if candidate is None:
            matched.strangers.append(path)
        else:
            matched.candidates.setdefault(candidate.task, []).append(candidate)
    for found in matched.candidates.values():
        found.sort(key=lambda candidate: (candidate.sample, natural(candidate.path.name)))
    if not matched.candidates:
        raise BadInput(
            f"no file of {folder} belongs to a task",
            hint="name candidates like their task, or level_1_problem_3_sample_0_kernel.py",
        )
    return matched


def _answers(folder: Path, tasks: Sequence[BenchTask]) -> Matched | None:
    """The answers in the layout of the tasks' own format; None where the folder has none."""
    forms = {task.form for task in tasks if task.form}
    matched = Matched()
    for name in sorted(forms):
        for answer in format_named(name).answers(folder, tasks):
            if answer.task:
                mine = matched.candidates.setdefault(answer.task, [])
                mine.append(replace(answer, sample=len(mine)))
            else:
                matched.strangers.append(answer.path)
    return matched if matched.candidates else None


def _match(path: Path, level: int | None, tasks: Sequence[BenchTask]) -> CandidateFile | None:
    if sample := _SAMPLE.fullmatch(path.stem):
        of_level, number, index = map(int, sample.groups())
        mine = [task for task in tasks if task.number == number and task.level in (None, of_level)]
        return CandidateFile(mine[0].name, path, index) if mine else None
    mine = [task for task in tasks if task.path.stem == path.stem and (level is None or task.level in (None, level))]
    if len(mine) > 1:
        raise BadInput(f"{path} could belong to {mine[0].name} or {mine[1].name}", hint="put it in a folder levelN")
    return CandidateFile(mine[0].name, path) if mine else None
