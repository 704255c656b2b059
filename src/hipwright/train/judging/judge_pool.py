"""Several judges as one: the GPUs of a machine, or judges on other machines."""

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
from hipwright.train.judging.open_tasks import key_of
from hipwright.train.judging.protocols import ProgramJudge
from hipwright.train.records import Clock, TrainingProblem

AHEAD = 8  # programs more than another judge has that send a task's next one there, where it is to be opened too


class JudgePool:
    """Programs of one task go to one judge, where it is open, unless that has `AHEAD` more waiting than another; what
    meets a fault of the machine is tried on another. A context manager that opens and closes them all.

    BadInput on entering where their devices or clocks differ: rewards of two devices do not compare.
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
                told = "; ".join(sorted(f"{device or 'no GPU'}, clock {clock!r}" for device, clock in kinds))
                raise BadInput(f"the judges differ: {told}", hint="rewards of two devices do not compare")
            self.device, self.clock = self.judges[0].device, self.judges[0].clock
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The evaluation to come, of whichever judge."""
        answer: Future[Evaluation] = Future()
        self._send(problem, program, answer, self._order(problem))
        return answer

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Each at the judge where its programs will go first."""
        for number, judge in enumerate(self.judges):
            mine = [problem for problem in problems if self._order(problem)[0] == number]
            if mine:
                judge.prefetch(mine)

    def state(self) -> dict[str, Any]:
        """Of those that have one, by place."""
        return {"judges": [judge.state() if hasattr(judge, "state") else None for judge in self.judges]}

    def load(self, state: Mapping[str, Any]) -> None:
        """What one judge knew, all know now: the number of judges may differ. Counts begin anew. Raises what their
        `load` raises."""
        for judge in (judge for judge in self.judges if hasattr(judge, "load")):
            for known in (one for one in state["judges"] if one is not None):
                judge.load({**known, "counts": {}})

    def figures(self) -> dict[str, Any]:
        """Of those that have some, by place."""
        return {"judges": [judge.figures() if hasattr(judge, "figures") else None for judge in self.judges]}

    # ---------------------------------------------------------------- inside

    def _order(self, problem: TrainingProblem) -> list[int]:
        """All judges, the task's own first: by rendezvous hashing, the same in every run."""
        source = key_of(problem).encode()
        return sorted(range(len(self.judges)), key=lambda n: hashlib.sha256(b"%d/" % n + source).digest())

    def _send(self, problem: TrainingProblem, program: Program, answer: Future[Evaluation], left: list[int]) -> None:
        with self._lock:
            least = min(left, key=lambda number: self._waiting[number])
            number = left[0] if self._waiting[left[0]] < self._waiting[least] + AHEAD else least
            self._waiting[number] += 1
        rest = [other for other in left if other != number]

        def told(judged: Future[Evaluation]) -> None:
            with self._lock:
                self._waiting[number] -= 1
            try:
                found = judged.result()
                if failed_by_machine(found) and rest:
                    self._send(problem, program, answer, rest)
                else:
                    answer.set_result(found)
            except BaseException as error:  # a judge that was closed, or a mistake of ours
                answer.set_exception(error)

        try:
            self.judges[number].submit(problem, program).add_done_callback(told)
        except BaseException:
            with self._lock:
                self._waiting[number] -= 1
            raise
