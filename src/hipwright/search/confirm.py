"""The winner is verified once more, on fresh secret seeds and unseen shapes, before it is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hipwright.archive import Confirmed, LogEntry
from hipwright.errors import InfrastructureError
from hipwright.records import Evaluation, Program
from hipwright.search import fitness
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.search.view import SearchView, Trial

if TYPE_CHECKING:
    from hipwright.search.loop import Search

Confirm = Callable[[Program], Evaluation]

_ATTEMPTS = 3


def confirm_winner(search: Search) -> Trial | None:
    """The fastest program that passes again: the best first, then the others by score; None if none does.

    Raises InfrastructureError when the machine keeps failing: nothing is recorded then, and the run can be resumed.
    """
    for trial in ranking(search.view):
        if trial.number not in search.log.confirmed:
            if search.stop_requested():
                raise KeyboardInterrupt
            evaluation = _again(search, trial.proposed.program)
            confirmed = Confirmed(program=trial.proposed.program, passed=evaluation.passed, evaluation=evaluation)
            search._append([LogEntry("confirmed", trial.number, confirmed.to_dict())])
        if search.log.confirmed[trial.number].passed:
            return trial
    return None


def ranking(view: SearchView) -> list[Trial]:
    """Verified trials: the one decided best, then by score, then by number."""

    def rank(trial: Trial) -> tuple[bool, float, int]:
        score = fitness.score(trial.evaluation)
        return trial is not view.best, score.value if score else float("inf"), trial.number

    return sorted(view.verified, key=rank)


def _again(search: Search, program: str) -> Evaluation:
    assert search.confirm is not None
    for _ in range(_ATTEMPTS):
        evaluation = search.confirm(search.archive.program(program))
        if evaluation.fault not in INFRASTRUCTURE:
            return evaluation
    raise InfrastructureError(
        f"the winner could not be verified again: {evaluation.message or evaluation.status}",
        hint="resume the run once the machine is well: nothing was lost",
    )
