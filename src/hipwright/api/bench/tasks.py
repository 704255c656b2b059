"""The tasks of a benchmark as they are opened: files, or texts that a format's loader made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hipwright.api.files import write_file
from hipwright.errors import BadInput
from hipwright.evaluation.formats.base import BenchTask
from hipwright.evaluation.suite import find_tasks
from hipwright.machine import TaskText


def task_input(task: BenchTask) -> Path | TaskText:
    """What `Machine.open` takes."""
    return task.path if task.text is None else TaskText(task.name.rpartition("/")[2], task.text)


def tasks_of(suite: Path, level: int | None, form: str | None) -> list[BenchTask]:
    """The tasks of a suite; a file is a folder of one. Raises BadInput."""
    if suite.suffix != ".py" or not suite.is_file():
        return find_tasks(suite, level, form)
    if level is not None:
        raise BadInput(f"{suite} is one task, which has no levels", hint="leave --level out")
    if form is not None:
        raise BadInput(f"{suite} is one task file, which has no format of a folder", hint="leave --format out")
    number = suite.stem.partition("_")[0]
    return [BenchTask(suite.stem, suite, None, int(number) if number.isdecimal() else None)]


def keep_texts(folder: Path, tasks: Sequence[BenchTask]) -> None:
    """Writes the task files that loaders made into folder/tasks, where other commands take them from."""
    for task in tasks:
        if task.text is not None:
            path = folder / "tasks" / f"{task.name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, task.text)
