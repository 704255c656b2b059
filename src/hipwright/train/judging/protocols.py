"""What judges programs, as those who ask it and those who build it see it: the protocols of `judges` and `lanes`."""

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
    """What judges programs. Safe to use from several threads; a context manager.

    device: the GPU's name, "" where nothing is timed. clock: what speedups rest on.
    """

    device: str
    clock: Clock

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The evaluation to come; it tells every fault itself, and the future raises nothing of the program's."""
        ...

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Get ready for these."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class JudgeBackend(Protocol):
    """How one kind of machine judges, for many threads at once."""

    device: str
    clock: Clock

    def open(self, problem: TrainingProblem) -> AbstractContextManager[Workbench]:
        """Open a task and get it warm."""
        ...

    def warm(self) -> None:
        """Start now what judges, so that the first programs do not wait for it. What does not start is told of when it
        is needed."""
        ...

    def judge(self, problem: TrainingProblem, program: Program, shelf: OpenTaskCache) -> Evaluation:
        """One verdict. Raises HipwrightError, for faults of task and machine among them."""
        ...

    def sharing(self) -> AbstractContextManager[None]:
        """A block during which nothing is timed."""
        ...

    def close(self) -> None:
        """End what it started; what runs raises."""
        ...
