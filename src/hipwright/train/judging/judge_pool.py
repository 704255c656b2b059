"""A judge over several judges: the GPUs of a machine, or other machines."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from hipwright.errors import BadInput
from hipwright.evaluation.faults import failed_by_machine
from hipwright.records import Evaluation, Program
from hipwright.train.judging.open_tasks import task_key
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.records import Clock, TrainingProblem

MAX_LEAD = 8
"""Waiting programs by which a judge may exceed another one before the other one gets the task's programs too."""


class JudgePool:
    """Distributes programs over judges. A context manager that opens and closes them all.

    The programs of one task go to one judge, where the task is open, unless that has `MAX_LEAD` more waiting programs
    than another. A fault of a machine is retried on another judge. Raises BadInput on entering where devices or clocks
    differ, since rewards of different devices are not comparable.
    """

    def __init__(self, judges: Sequence[ProgramJudge]) -> None:
        if not judges:
            raise BadInput("no judges", hint="give one for each GPU, or the addresses of some")
        self.judges = list(judges)
        self.device = ""
        self.clock: Clock = ""
        self._lock = threading.Lock()
        self._waiting = [0] * len(judges)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            with ThreadPoolExecutor(len(self.judges)) as pool:
                opening = [pool.submit(judge.__enter__) for judge in self.judges]
            for judge, opened in zip(self.judges, opening, strict=True):
                if opened.exception() is None:
                    stack.push(judge)
            for opened in opening:
                opened.result()
            kinds = {(judge.device, judge.clock) for judge in self.judges}
            if len(kinds) > 1:
                found = "; ".join(sorted(f"{device or 'no GPU'}, clock {clock!r}" for device, clock in kinds))
                raise BadInput(f"the judges differ: {found}", hint="rewards of different devices are not comparable")
            self.device, self.clock = self.judges[0].device, self.judges[0].clock
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The future evaluation, of any judge."""
        answer: Future[Evaluation] = Future()
        self._send(problem, program, answer, self._judge_order(problem))
        return answer

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Prefetches each problem at the judge of its programs."""
        for number, judge in enumerate(self.judges):
            mine = [problem for problem in problems if self._judge_order(problem)[0] == number]
            if mine:
                judge.prefetch(mine)

    def state(self) -> dict[str, Any]:
        """The states of the judges, by index; None for a judge without one."""
        return {"judges": [judge.state() if hasattr(judge, "state") else None for judge in self.judges]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Loads the verdicts of all judges' states into every judge; their number may differ. Counts restart at 0.

        Raises what the judges' `load` raises.
        """
        for judge in (judge for judge in self.judges if hasattr(judge, "load")):
            for known in (one for one in state["judges"] if one is not None):
                judge.load({**known, "counts": {}})

    def figures(self) -> dict[str, Any]:
        """The figures of the judges, by index; None for a judge without any."""
        return {"judges": [judge.figures() if hasattr(judge, "figures") else None for judge in self.judges]}

    # ---------------------------------------------------------------- dispatch

    def _judge_order(self, problem: TrainingProblem) -> list[int]:
        """The indices of all judges in the task's order, by rendezvous hashing: the same in every run."""
        source = task_key(problem).encode()
        return sorted(range(len(self.judges)), key=lambda n: hashlib.sha256(b"%d/" % n + source).digest())

    def _send(self, problem: TrainingProblem, program: Program, answer: Future[Evaluation], left: list[int]) -> None:
        with self._lock:
            least = min(left, key=lambda number: self._waiting[number])
            number = left[0] if self._waiting[left[0]] < self._waiting[least] + MAX_LEAD else least
            self._waiting[number] += 1
        rest = [other for other in left if other != number]

        def deliver(judged: Future[Evaluation]) -> None:
            with self._lock:
                self._waiting[number] -= 1
            try:
                found = judged.result()
                if failed_by_machine(found) and rest:
                    self._send(problem, program, answer, rest)
                else:
                    answer.set_result(found)
            except BaseException as error:  # a closed judge, or a defect here
                answer.set_exception(error)

        try:
            self.judges[number].submit(problem, program).add_done_callback(deliver)
        except BaseException:
            with self._lock:
                self._waiting[number] -= 1
            raise
