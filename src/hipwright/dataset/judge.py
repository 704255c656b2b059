"""Verdicts for the rows of a data set. Faults of the infrastructure and of the task are raised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from hipwright.errors import HipwrightError, WorkerError
from hipwright.evaluation import Evaluator
from hipwright.records import Evaluation, Program
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.task import TaskHandle
from hipwright.verify import Oracle

WRONG_STATUSES = (
    "wrong_value",
    "out_of_bounds",
    "nondeterministic",
    "bad_output_spec",
    "input_mutated",
    "launch_error",
    "hack",
)
"""Statuses of negatives. Not among them: "timeout", which depends on the machine's load, and build failures."""


class OpenTask(Protocol):
    """An opened task (hipwright.machine.Workbench)."""

    handle: TaskHandle
    evaluator: Evaluator


class UnusableTask(HipwrightError):
    """The evaluator found the task itself at fault."""


@dataclass
class PairJudge:
    """Evaluates the programs of one task. seed: of the second draw of inputs; evaluations: how many so far."""

    bench: OpenTask
    seed: int
    evaluations: int = 0

    def verdict(self, program: Program) -> Evaluation:
        """The evaluation of a program. Raises WorkerError for infrastructure faults, UnusableTask for the task's."""
        return self._judged(program, None)

    def is_wrong(self, program: Program, evaluation: Evaluation) -> bool:
        """Whether a program is refused on a second draw of inputs too.

        One draw may refuse a correct program, where rounding moves the position of a minimum.
        """
        return is_refused(evaluation) and is_refused(self._judged(program, self._second))

    @cached_property
    def _second(self) -> Oracle:
        return Oracle(self.bench.handle, seed=self.seed)

    def _judged(self, program: Program, oracle: Oracle | None) -> Evaluation:
        self.evaluations += 1
        evaluation = self.bench.evaluator.evaluate(program, oracle)
        if evaluation.fault in INFRASTRUCTURE:
            raise WorkerError(evaluation.message or f"{evaluation.fault} at fault", status=evaluation.status)
        if evaluation.fault == "task":
            raise UnusableTask(evaluation.message or evaluation.status, status=evaluation.status)
        return evaluation


def is_refused(evaluation: Evaluation) -> bool:
    """Whether the verifier refused the program for its behaviour."""
    return evaluation.fault == "candidate" and evaluation.status in WRONG_STATUSES
