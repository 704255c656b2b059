"""Whether the screener's predictions are better than the base rate, on events that it had not seen.

Every prediction of a run is stored before its program is judged, so that a run's own trials are held-out events. They
are compared with the base rate, the share of all events of their kind so far: hindsight, and so the harder to beat.
Events that all had one outcome tell nothing apart and are left out. The screener ranks draws only while its Brier score
over LEAST or more events is the lower one.
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
    seen: dict[str, list[tuple[float, bool]]] = {event: [] for event in EVENTS}
    by_program = {trial.proposed.program: trial.evaluation for trial in view.verified}
    for trial in view.trials:
        evaluation, notes = trial.evaluation, trial.proposed.notes.get("screener")
        if evaluation is None or evaluation.fault in INFRASTRUCTURE or not isinstance(notes, dict):
            continue
        before = next((by_program.get(key) for key in trial.proposed.expansion.parents[:1]), None)
        for event, happened in _happened(evaluation, before).items():
            if isinstance(predicted := notes.get(event), (int, float)):
                seen[event].append((float(predicted), happened))
    told = [pairs for pairs in seen.values() if len({happened for _, happened in pairs}) == 2]
    rates = [sum(happened for _, happened in pairs) / len(pairs) for pairs in told]
    return Skill(
        sum(len(pairs) for pairs in told),
        sum((predicted - happened) ** 2 for pairs in told for predicted, happened in pairs),
        sum(len(pairs) * rate * (1.0 - rate) for pairs, rate in zip(told, rates, strict=True)),
    )


def _happened(evaluation: Evaluation, parent: Evaluation | None) -> dict[str, bool]:
    happened = {"passes": evaluation.passed}
    if parent is not None:
        happened["better"] = fitness.faster(evaluation, parent)
    return happened
