"""Verdicts that a row may rest on. The machine's faults are raised: they say nothing of a program."""

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

WRONG = ("wrong_value", "out_of_bounds", "nondeterministic", "bad_output_spec", "input_mutated", "launch_error", "hack")
"""What a negative may be. Not "timeout", which depends on how busy the machine is, and not what does not compile."""


class OpenTask(Protocol):
    """An opened task (hipwright.machine.Workbench)."""

    handle: TaskHandle
    evaluator: Evaluator


class NoTask(HipwrightError):
    """The evaluator found that nothing can be judged on this task."""


@dataclass
class PairJudge:
    """Judges the programs of one task. seed: of the second draw of inputs; evaluations: programs judged so far."""

    bench: OpenTask
    seed: int
    evaluations: int = 0

    def verdict(self, program: Program) -> Evaluation:
        """Of the whole evaluator. Raises WorkerError for the machine's fault, NoTask for the task's."""
        return self._judged(program, None)

    def is_wrong(self, program: Program, evaluation: Evaluation) -> bool:
        """Refused for what it does, on a second draw of inputs too: an honest program may be out of luck on one, where
        rounding moves the place of a minimum."""
        return refused(evaluation) and refused(self._judged(program, self._second))

    @cached_property
    def _second(self) -> Oracle:
        return Oracle(self.bench.handle, seed=self.seed)

    def _judged(self, program: Program, oracle: Oracle | None) -> Evaluation:
        self.evaluations += 1
        evaluation = self.bench.evaluator.evaluate(program, oracle)
        if evaluation.fault in INFRASTRUCTURE:
            raise WorkerError(evaluation.message or f"{evaluation.fault} at fault", status=evaluation.status)
        if evaluation.fault == "task":
            raise NoTask(evaluation.message or evaluation.status, status=evaluation.status)
        return evaluation


def refused(evaluation: Evaluation) -> bool:
    """By the verifier, for what the program does."""
    return evaluation.fault == "candidate" and evaluation.status in WRONG
