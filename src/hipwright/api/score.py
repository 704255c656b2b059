"""Scores many programs of one task by the fast gate and a short timing, for learning (docs/score.md)."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.api import targets as known_targets
from hipwright.api.inputs import task_source
from hipwright.api.workbench import open_workbench
from hipwright.errors import BadInput
from hipwright.evaluation.score import BatchScorer
from hipwright.records import Evaluation, Program
from hipwright.targets import TARGETS


def scoring_target(targets: Sequence[str] | None = None) -> str:
    """The first of the targets that is a GPU. Raises BadInput where none is: score mode times programs."""
    chosen = [name for name in known_targets.choose(targets) if TARGETS.is_gpu(name)]
    if not chosen:
        raise BadInput(
            "score mode times programs, so it needs a GPU",
            hint="without one, `hipwright eval` verifies a program on the cpu target",
        )
    return chosen[0]


def score_programs(
    task: object, programs: Sequence[Program], target: str, *, seed: int | None = None, unsafe: bool = False
) -> list[Evaluation]:
    """The evaluations of programs of one task, in their order. target: from `scoring_target`."""
    with (
        open_workbench(task_source(task), (target,), seed=seed, unsafe=unsafe) as bench,
        BatchScorer(bench.evaluator) as scorer,
    ):
        scorer.warm()
        return scorer.score(programs)
