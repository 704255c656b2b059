"""Suites: named sets of tasks, each described by one TOML file (docs/bench.md, "Add a suite")."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from hipwright import config
from hipwright.errors import BadInput
from hipwright.records import Record


class SuiteFile(Record, frozen=True, kw_only=True):
    """The content of a suite's file. tasks: glob patterns, relative to the file.

    max_autotune: patterns of the names of tasks that are also compared with torch.compile's max-autotune. gathers:
    patterns of tasks that pick or sort rather than stream, which are held to half of a copy's speed.
    """

    description: str
    tasks: tuple[str, ...]
    max_autotune: tuple[str, ...] = ()
    gathers: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskSuite:
    """A suite. name: its file's; paths: its task files in order. A task's name is FAMILY/NAME: its folder and file."""

    name: str
    file: SuiteFile
    paths: tuple[Path, ...]

    def uses_max_autotune(self, task: str) -> bool:
        """Whether a task is compared with max-autotune too."""
        return any(fnmatchcase(task, pattern) for pattern in self.file.max_autotune)

    def gathers(self, task: str) -> bool:
        """Whether a task picks or sorts rather than streams."""
        return any(fnmatchcase(task, pattern) for pattern in self.file.gathers)


def task_name(path: Path) -> str:
    """FAMILY/NAME of a task file."""
    return f"{path.parent.name}/{path.stem}"


def suite_folders() -> tuple[Path, ...]:
    """Where suites are found by name: `suites` in $HIPWRIGHT_HOME, and `benchmarks/suites` of the working folder."""
    return config.home() / "suites", Path("benchmarks/suites")


def list_suites() -> dict[str, Path]:
    """The files of the suites that are found by name; the user's own come before those of the working folder."""
    found = [path for folder in reversed(suite_folders()) for path in sorted(folder.glob("*.toml"))]
    return {path.stem: path for path in found}


def open_suite(path: Path) -> TaskSuite:
    """The suite that a file describes. Raises BadInput for a file that is none, and for a suite without tasks."""
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), SuiteFile)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the suite {path}: {error}") from None
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"{path} describes no suite: {error}", hint="docs/bench.md, Add a suite") from None
    paths = [task.resolve() for pattern in file.tasks for task in sorted(path.parent.glob(pattern)) if task.is_file()]
    names = [task_name(task) for task in paths]
    if not paths:
        raise BadInput(f"the suite {path} has no tasks", hint=f"its patterns are {', '.join(file.tasks)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"two tasks of the suite {path} are named {twice[0]}")
    return TaskSuite(path.stem, file, tuple(paths))
