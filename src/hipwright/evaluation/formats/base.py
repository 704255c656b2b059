"""The interface of the loaders of task formats, and the tasks that they make.

A loader is one file with one object (`TaskFormat`) and one line in `registry.FORMATS`. It reads text and never runs it:
what a folder holds comes from others. A task of another format becomes the text of a task file in the KernelBench form
(docs/tasks.md), which is opened in the sandbox like every task.
`tests/evaluation/formats/format_contract.py` is the test that every loader passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hipwright.errors import BadInput
from hipwright.records import Record
from hipwright.verify.tolerance import AllclosePolicy

_NO_TRAINING = "# not for training: "


def marked(text: str, why: str) -> str:
    """A task file's text with its licence's rule as the first line, which a copy of the file keeps."""
    return f"{_NO_TRAINING}{why}\n{text}" if why else text


def kept_out(text: str) -> str:
    """Why a task file's licence keeps it out of data sets, by its first line; "" where that says nothing."""
    first = text.partition("\n")[0]
    return first.removeprefix(_NO_TRAINING).strip() if first.startswith(_NO_TRAINING) else ""


class FormatRule(Record, frozen=True, kw_only=True):
    """A format's own rule for right values and for time, in words; source: the document that states it.

    atol, rtol: the numbers of its allclose, None where it has none that holds for all tasks. matched: the share of
    elements that must be within them.
    """

    tolerance: str
    timing: str
    source: str
    atol: float | None = None
    rtol: float | None = None
    matched: float = 1.0

    @property
    def policy(self) -> AllclosePolicy | None:
        """The rule for right values as verification takes it; None where it has no numbers."""
        if self.atol is None or self.rtol is None:
            return None
        return AllclosePolicy(atol=self.atol, rtol=self.rtol, matched=self.matched)


@dataclass(frozen=True)
class BenchTask:
    """One task of a folder.

    name: its path below the folder without a suffix. level, number: from KernelBench's names, if any. form: the
    format's name, "" for a suite's and a single file. category: the format's own group. text: the made task file; None
    where `path` is one itself. problem: why it is no task, in one line that names the file and the field. notes: what
    of it is not judged, a sentence each.
    """

    name: str
    path: Path
    level: int | None = None
    number: int | None = None
    form: str = ""
    category: str = ""
    text: str | None = None
    problem: str = ""
    notes: tuple[str, ...] = ()
    rule: FormatRule | None = None

    def read(self) -> str:
        """The text of the task file. Raises BadInput for a malformed task and for a file that cannot be read."""
        if self.problem:
            raise BadInput(self.problem)
        if self.text is not None:
            return self.text
        try:
            return self.path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"the task {self.path} is not UTF-8 text: byte {error.start} is wrong") from None
        except OSError as error:
            raise BadInput(f"cannot read the task {self.path}: {error.strerror}") from None


@dataclass(frozen=True)
class CandidateFile:
    """One candidate of a task. sample: its number among several.

    text: the candidate that a format's answer was made; None where `path` is one itself. problem: why an answer is
    none, in one line that names the file and the field.
    """

    task: str
    path: Path
    sample: int = 0
    text: str | None = None
    problem: str = ""


class TaskFormat(Protocol):
    """The loader of one format.

    name: as `--format` takes it; title: as pages write it; layout: its files in a few words. no_training: what its
    licence forbids, "" where nothing is known to forbid training on its tasks.
    """

    name: str
    title: str
    layout: str
    no_training: str
    rule: FormatRule

    def detect(self, folder: Path) -> bool:
        """Whether a folder has this layout, by names of files and few bytes of them. Never raises."""
        ...

    def load(self, folder: Path) -> Iterable[BenchTask]:
        """The tasks of a folder in order, malformed ones with their `problem`; empty where there are none."""
        ...

    def answers(self, folder: Path, tasks: Sequence[BenchTask]) -> Iterable[CandidateFile]:
        """The answers to `tasks` in the format's own layout, as ModelNew files; empty where it has no such."""
        return ()
