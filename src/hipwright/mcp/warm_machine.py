"""The machine that evaluates for the tools: contained processes and the last task, kept between calls."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.api.evaluate import lint_program
from hipwright.errors import InfrastructureError
from hipwright.events import Listener
from hipwright.machine import Machine, Workbench
from hipwright.records import Evaluation, Program, Task


def digest(task: Path) -> str:
    """A hash of a task file's text, by which a changed file is noticed."""
    return hashlib.sha256(task.read_bytes()).hexdigest()


@dataclass(frozen=True)
class JudgedProgram:
    """One evaluation of this session, and its name in the tools.

    digest: of the task's text; kept: the result of `Journal.add`, empty where the session stores nothing.
    """

    name: str
    task: Path
    program: Program
    evaluation: Evaluation
    digest: str = ""
    warnings: tuple[Mapping[str, Any], ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class WarmMachine:
    """One machine, which `start` starts for the first evaluation.

    For one thread at a time; `abort` may be called from any.
    """

    start: Callable[[], AbstractContextManager[Machine]]
    _stack: ExitStack = field(default_factory=ExitStack)
    _opened: ExitStack = field(default_factory=ExitStack)
    _machine: Machine | None = None
    _bench: Workbench | None = None
    _task: str = ""
    _aborted: threading.Event = field(default_factory=threading.Event)

    def evaluate(
        self, task: Path, program: Program, listener: Listener
    ) -> tuple[Evaluation, list[dict[str, Any]], Task]:
        """(evaluation, static warnings, the opened task); the inputs are drawn for this evaluation alone.

        Raises what opening the task raises, and InfrastructureError after an abort.
        """
        from hipwright.search.interfaces import INFRASTRUCTURE
        from hipwright.verify import Oracle

        try:
            bench = self._ready(task, listener)
            warnings = list(lint_program(bench, program))
            listener("stage", {"text": "compiling, verifying and estimating the program"})
            oracle = Oracle(bench.handle, listener=listener)  # with a new secret seed, drawn after the text is fixed
            evaluation, opened = bench.evaluator.evaluate(program, oracle, thorough=True), bench.handle.task
        except BaseException:
            self.close()
            raise
        if self._aborted.is_set() or evaluation.fault in INFRASTRUCTURE:
            self.close()  # the rest of the machine may be broken too
        self._check()
        return evaluation, warnings, opened

    def begin(self) -> None:
        """Clears an abort of the call before."""
        self._aborted.clear()

    def abort(self) -> None:
        """Makes the current evaluation fail soon; called from another thread."""
        self._aborted.set()
        if (machine := self._machine) is not None:
            machine.close()

    def close(self) -> None:
        """Ends the machine; the next evaluation starts another."""
        self._bench, self._task, self._machine = None, "", None
        try:
            self._opened.close()
        finally:
            self._stack.close()

    def _ready(self, task: Path, listener: Listener) -> Workbench:
        """The open task, opened again for another task or a changed text."""
        name = f"{task}\0{digest(task)}"
        if self._bench is not None and name == self._task:
            return self._bench
        self._bench, self._task = None, ""
        self._opened.close()
        if self._machine is None:
            self._machine = self._stack.enter_context(self.start())
        self._check()
        self._bench = self._opened.enter_context(self._machine.open(task, seed=None, listener=listener))
        self._task = name
        return self._bench

    def _check(self) -> None:
        if self._aborted.is_set():
            raise InfrastructureError("the evaluation was cancelled")
