"""What a search tells its listener of each event."""

from __future__ import annotations

from typing import Any

from hipwright.archive import RunLog
from hipwright.records import Event
from hipwright.search.view import UNCOUNTED


def progress(event: Event, log: RunLog, budget: int) -> dict[str, Any]:
    """The listener's data for one event. log: the run's, with the event."""
    counted = sum(log.proposed[number].expansion.operator not in UNCOUNTED for number in log.evaluated)
    data: dict[str, Any] = {"number": event.number, "evaluations": counted, "budget": budget}
    if event.kind == "proposed":
        proposed = log.proposed[event.number]
        data["operator"] = proposed.expansion.operator
        if why := proposed.notes.get("fallback"):
            data |= {"fallback": why, "given_up": proposed.notes.get("given_up", "")}
    evaluated = log.evaluated.get(event.number)
    if evaluated is not None:
        evaluation = evaluated.evaluation
        data |= {"status": evaluation.status, "message": evaluation.message, "score": evaluation.score}
        data["score_kind"] = evaluation.score_kind
    if event.kind == "decided":
        decision = log.decided[event.number]
        data |= {"kept": decision.kept, "best": decision.best, "reason": decision.reason}
    return {**event.data, **data} if event.kind in ("finished", "interrupted", "resumed") else data
