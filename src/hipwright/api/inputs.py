"""A caller's inputs: tasks and programs as files, as text or as records."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hipwright.api.files import read_text
from hipwright.errors import BadInput
from hipwright.machine import existing_file
from hipwright.records import Program

if TYPE_CHECKING:
    from hipwright.sandbox import Zygote
    from hipwright.task import TaskHandle


@dataclass(frozen=True)
class TaskSource:
    """A task to open: a file, or source text without one. name: without a suffix; path: as the caller wrote it."""

    name: str
    path: Path | None = None
    text: str = ""

    @property
    def shown(self) -> str:
        """The task as a command line argument."""
        return str(self.path) if self.path is not None else f"{self.name}.py"

    def read(self) -> str:
        """The source text. Raises BadInput for a file that cannot be read."""
        return self.text if self.path is None else read_text(self.path, "task")

    def open(self, host: Zygote) -> TaskHandle:
        """The task in a session of its sandboxed host."""
        from hipwright.task import open_source, open_task

        return open_source(self.name, self.text, host) if self.path is None else open_task(self.path, host)


def task_source(given: object) -> TaskSource:
    """A path, or the text of a task file, as a TaskSource. A string with a line break is text.

    Raises BadInput for a file that does not exist; TypeError for anything else.
    """
    if isinstance(given, TaskSource):
        return given
    if isinstance(given, str) and "\n" in given:
        return TaskSource("task", text=given)
    if isinstance(given, (str, Path)):
        path = Path(given)
        existing_file(path, "task")
        return TaskSource(path.stem, path)
    raise TypeError(f"a task is a path or source text, not {type(given).__name__}")


def is_live(given: object) -> bool:
    """Whether this is a torch module, or a function. Raises BadInput for a class of modules. Imports no torch."""
    base = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)
    if isinstance(given, type):
        if base is not None and issubclass(given, base):
            raise BadInput(f"{given.__name__} is a class", hint="give a module: an instance, with its parameters")
        return False
    return callable(given)


def program_from(given: Program | str | Path, task: TaskSource | None = None) -> Program:
    """A program record, a file, or its text, as a record. A CUDA or HIP source is converted for the task.

    Raises BadInput for a file that cannot be read, and ProgramError for a source that cannot be converted.
    """
    if isinstance(given, Program):
        return given
    if isinstance(given, str) and "\n" in given:
        return program_of(given)
    if isinstance(given, (str, Path)):
        from hipwright.api.start.reading import read_candidate

        return read_candidate(Path(given), None if task is None else task.read()).judged()
    raise TypeError(f"a program is a Program, a path or source text, not {type(given).__name__}")


def program_of(text: str, knobs: dict[str, int] | None = None) -> Program:
    """The record of a candidate's text: a HIP program with a launch plan, or a ModelNew file."""
    from hipwright.program.modelnew.check import form_of

    return Program(form="modelnew" if form_of(text) == "modelnew" else "program", text=text, knobs=knobs or {})


def no_inputs(inputs: object) -> None:
    """Raises TypeError where inputs are given with a task file, which has its own."""
    if inputs is not None:
        raise TypeError("a task file brings its own inputs (get_inputs); example_inputs belong to modules in memory")
