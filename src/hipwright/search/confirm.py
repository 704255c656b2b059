"""Second verification of a run's winner, on fresh secret seeds and unseen shapes, before it is reported."""

from __future__ import annotations

from collections.abc import Callable

from hipwright.archive import Confirmed
from hipwright.errors import InfrastructureError
from hipwright.records import Evaluation, Program
from hipwright.search import fitness
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.search.view import SearchView, Trial

Confirm = Callable[[Program], Evaluation]
"""Verifies a program on fresh inputs."""

ATTEMPTS = 3
"""Verifications of one program while the fault is the machine's."""


def ranking(view: SearchView) -> list[Trial]:
    """Verified trials: the one decided best, then by score, then by number."""

    def rank(trial: Trial) -> tuple[bool, float, int]:
        score = fitness.score(trial.evaluation)
        return trial is not view.best, score.value if score else float("inf"), trial.number

    return sorted(view.verified, key=rank)


def confirmation(confirm: Confirm, program: Program) -> Confirmed:
    """Verifies one program again.

    Raises InfrastructureError when the machine keeps failing: that is no verdict, and the run can be resumed.
    """
    for _ in range(ATTEMPTS):
        evaluation = confirm(program)
        if evaluation.fault not in INFRASTRUCTURE:
            return Confirmed(program=program.key, passed=evaluation.passed, evaluation=evaluation)
    raise InfrastructureError(
        f"the winner could not be verified again: {evaluation.message or evaluation.status}",
        hint="resume the run once the machine is well: nothing was lost",
    )
