"""The warm machine behind the tools: contained processes and the task opened last, kept between calls."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.events import Listener
from hipwright.records import Evaluation, Program, Task

if TYPE_CHECKING:
    from hipwright.evaluation import Evaluator
    from hipwright.measure.profiler import ProfileReport
    from hipwright.task import TaskHandle


def digest(task: Path) -> str:
    """A task file's content by name: another text is another task."""
    return hashlib.sha256(task.read_bytes()).hexdigest()


class WorkbenchLike(Protocol):
    """An opened task and what judges programs for it."""

    @property
    def handle(self) -> TaskHandle:
        """The task."""
        ...

    @property
    def evaluator(self) -> Evaluator:
        """The judge."""
        ...


class MachineLike(Protocol):
    """The contained processes; see hipwright.machine.Machine."""

    def open(self, task: Path, *, seed: int | None, listener: Listener) -> AbstractContextManager[WorkbenchLike]:
        """Open a task."""
        ...

    def close(self) -> None:
        """End every process, from any thread; what runs in them raises."""
        ...


@dataclass(frozen=True)
class Lent:
    """What the command line lends the server, which stands below it and may not import it.

    machine: starts one. result, error: the objects that `eval --json` prints. plain: a value as JSON can hold it.
    counters: the profiler's figures of a program (task file, program); None where no GPU was asked for.
    """

    machine: Callable[[], AbstractContextManager[MachineLike]]
    result: Callable[..., dict[str, Any]]
    not_measured: Callable[[Sequence[str], Evaluation | None], list[str]]
    error: Callable[[HipwrightError], dict[str, Any]]
    plain: Callable[[Any], Any]
    counters: Callable[[Path, Program, Listener], ProfileReport] | None = None


@dataclass(frozen=True)
class JudgedProgram:
    """One evaluation of this session, under the name that the tools know it by. digest: of the task's text; kept: what
    `Journal.add` says, where the session keeps what it judges."""

    name: str
    task: Path
    program: Program
    evaluation: Evaluation
    digest: str = ""
    warnings: tuple[Mapping[str, Any], ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class WarmMachine:
    """One machine, started with the first evaluation. For one thread at a time; `abort` comes from another."""

    lent: Lent
    _stack: ExitStack = field(default_factory=ExitStack)
    _opened: ExitStack = field(default_factory=ExitStack)
    _machine: MachineLike | None = None
    _bench: WorkbenchLike | None = None
    _task: str = ""
    _aborted: threading.Event = field(default_factory=threading.Event)

    def evaluate(
        self, task: Path, program: Program, listener: Listener
    ) -> tuple[Evaluation, list[dict[str, Any]], Task]:
        """The evaluation, on inputs drawn for it alone, the static warnings, and the task as it was opened.

        Raises what opening the task raises, and InfrastructureError for what was aborted.
        """
        from hipwright.errors import ProgramError
        from hipwright.search.interfaces import INFRASTRUCTURE
        from hipwright.verify import Oracle

        try:
            bench = self._ready(task, listener)
            try:
                warnings = [found.to_dict() for found in bench.evaluator.lint(program)]
            except ProgramError:
                warnings = []
            listener("stage", {"text": "compiling, verifying and estimating the program"})
            oracle = Oracle(bench.handle, listener=listener)  # a secret of its own, drawn now that the text is fixed
            evaluation, opened = bench.evaluator.evaluate(program, oracle, thorough=True), bench.handle.task
        except BaseException:
            self.close()
            raise
        if self._aborted.is_set() or evaluation.fault in INFRASTRUCTURE:
            self.close()  # what is left of the machine is not to be trusted
        self._check()
        return evaluation, warnings, opened

    def begin(self) -> None:
        """Forget an abort that was meant for the call before."""
        self._aborted.clear()

    def abort(self) -> None:
        """Make the evaluation under way fail soon, from another thread."""
        self._aborted.set()
        if (machine := self._machine) is not None:
            machine.close()

    def close(self) -> None:
        """End the machine; the next evaluation starts another."""
        self._bench, self._task, self._machine = None, "", None
        try:
            self._opened.close()
        finally:
            self._stack.close()

    def _ready(self, task: Path, listener: Listener) -> WorkbenchLike:
        """The task, opened anew when it is another or its text has changed."""
        name = f"{task}\0{digest(task)}"
        if self._bench is not None and name == self._task:
            return self._bench
        self._bench, self._task = None, ""
        self._opened.close()
        if self._machine is None:
            self._machine = self._stack.enter_context(self.lent.machine())
        self._check()
        self._bench = self._opened.enter_context(self._machine.open(task, seed=None, listener=listener))
        self._task = name
        return self._bench

    def _check(self) -> None:
        if self._aborted.is_set():
            raise InfrastructureError("the evaluation was cancelled")
