"""Whether the screener's predictions are better than the base rate, on events that it had not seen.

Every prediction of a run is stored before its program is judged, so that a run's own trials are held-out events. Each
is compared with the base rate at that moment, the share of earlier events of its kind by Laplace's rule: a prediction
that anyone could make. The screener ranks draws only while its Brier score over LEAST or more of them is the lower one.
"""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.records import Evaluation
from hipwright.search import SearchView, fitness
from hipwright.search.interfaces import INFRASTRUCTURE

LEAST = 8
"""Held-out predictions from which on the screener may be trusted."""
EVENTS = ("passes", "better")


@dataclass(frozen=True)
class Skill:
    """Sums over held-out predictions: their number, squared errors, and those of the base rate."""

    predictions: int = 0
    errors: float = 0.0
    base: float = 0.0

    @property
    def shown(self) -> bool:
        """Whether the predictions are better than the base rate, on enough events."""
        return self.predictions >= LEAST and self.errors < self.base

    @property
    def brier(self) -> tuple[float, float] | None:
        """(Brier score of the predictions, of the base rate); None without predictions."""
        return (self.errors / self.predictions, self.base / self.predictions) if self.predictions else None


def skill(view: SearchView) -> Skill:
    """The skill of the engine's predictions in a run so far; machine faults are left out."""
    seen = {event: [1.0, 2.0] for event in EVENTS}  # (happened + 1, events + 2)
    by_program = {trial.proposed.program: trial.evaluation for trial in view.verified}
    predictions, errors, base = 0, 0.0, 0.0
    for trial in view.trials:
        evaluation, notes = trial.evaluation, trial.proposed.notes.get("screener")
        if evaluation is None or evaluation.fault in INFRASTRUCTURE:
            continue
        before = next((by_program.get(key) for key in trial.proposed.expansion.parents[:1]), None)
        for event, happened in _happened(evaluation, before).items():
            predicted = notes.get(event) if isinstance(notes, dict) else None
            if isinstance(predicted, (int, float)):
                predictions += 1
                errors += (float(predicted) - happened) ** 2
                base += (seen[event][0] / seen[event][1] - happened) ** 2
            seen[event][0] += happened
            seen[event][1] += 1.0
    return Skill(predictions, errors, base)


def _happened(evaluation: Evaluation, parent: Evaluation | None) -> dict[str, bool]:
    happened = {"passes": evaluation.passed}
    if parent is not None:
        happened["better"] = fitness.faster(evaluation, parent)
    return happened
