"""Protocols of judges (`judges.py`, `judge_pool.py`, `remote.py`) and of a judge's backends (`backends.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from hipwright.machine import Workbench
from hipwright.records import Evaluation, Program
from hipwright.train.judging.open_tasks import OpenTaskCache
from hipwright.train.records import Clock, TrainingProblem


class ProgramJudge(Protocol):
    """Judges programs. Safe to use from several threads; a context manager.

    device: the GPU's name, "" where nothing is timed. clock: the source of speedups.
    """

    device: str
    clock: Clock

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The future evaluation. It holds faults of program, task and machine; the future does not raise them."""
        ...

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Prepares for programs of these problems."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class JudgeBackend(Protocol):
    """Judges programs on one kind of machine. Safe to use from several threads."""

    device: str
    clock: Clock

    def open(self, problem: TrainingProblem) -> AbstractContextManager[Workbench]:
        """Opens a task with its expectations."""
        ...

    def warm(self) -> None:
        """Starts the processes that judge. A process that does not start raises when it is needed."""
        ...

    def judge(self, problem: TrainingProblem, program: Program, tasks: OpenTaskCache) -> Evaluation:
        """The evaluation of a program. Raises HipwrightError for faults of task and machine."""
        ...

    def timing_paused(self) -> AbstractContextManager[None]:
        """A block during which nothing is timed."""
        ...

    def close(self) -> None:
        """Ends the processes; judgements in progress raise."""
        ...
