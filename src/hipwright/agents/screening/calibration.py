"""Calibration of the screener over all runs of an archive: Brier score, reliability with intervals, AUC.

Only proposed programs are judged, so the figures hold for programs that the screener let through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from hipwright.archive import Archive, RunLog, readable_log
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.records import Evaluation
from hipwright.search import fitness
from hipwright.search.interfaces import INFRASTRUCTURE

EVENTS = ("compiles", "passes", "better")
_NOT_COMPILED = ("parse_error", "compile_error")
_Z = 1.96  # 95 %


@dataclass(frozen=True)
class Bin:
    """Predictions between low and high: their mean, the observed share, and its 95 % interval (Wilson 1927)."""

    low: float
    high: float
    n: int
    predicted: float
    observed: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class EventCalibration:
    """One event's predictions. base_brier: of always predicting the observed share. auc: None if all outcomes agree.

    event: "compiles", "passes" (verified), or "better" (verified and faster than the parent beyond the noise band).
    """

    event: str
    predictions: int
    brier: float
    base_brier: float
    auc: float | None
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Calibration:
    """The calibration over an archive. runs: with predictions; events: by name, only those that were predicted."""

    runs: int
    events: Mapping[str, EventCalibration]


def calibration(archive: Archive, author: str | None = None, bins: int = 5) -> Calibration:
    """Compares every stored prediction with the outcome; machine faults are left out.

    author: "engine" or "llm", None for both. bins: of equal width between 0 and 1; empty ones are left out.
    """
    pairs: dict[str, list[tuple[float, bool]]] = {event: [] for event in EVENTS}
    runs = 0
    for run in archive.runs():
        found = list(_predictions(readable_log(archive, run.id), author))
        runs += bool(found)
        for event, predicted, happened in found:
            pairs[event].append((predicted, happened))
    return Calibration(runs, {event: _judged(event, seen, bins) for event, seen in pairs.items() if seen})


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    share = hits / n
    centre, width = share + _Z**2 / (2 * n), _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    scale = 1 + _Z**2 / n
    return max((centre - width) / scale, 0.0), min((centre + width) / scale, 1.0)


def _predictions(log: RunLog, author: str | None) -> Iterator[tuple[str, float, bool]]:
    by_program = {e.evaluation.program: e.evaluation for e in log.evaluated.values()}
    margin = float(log.started.get("run", {}).get("settings", {}).get("margin", fitness.MODEL_NOISE))
    for number, proposed in sorted(log.proposed.items()):
        notes, evaluated = proposed.notes.get("screener"), log.evaluated.get(number)
        if not isinstance(notes, dict) or evaluated is None or evaluated.evaluation.fault in INFRASTRUCTURE:
            continue
        if author is not None and notes.get(AUTHOR_NOTE) != author:
            continue
        parent = next((by_program[key] for key in proposed.expansion.parents[:1] if key in by_program), None)
        happened = _happened(evaluated.evaluation, parent, margin)
        for event in EVENTS:
            predicted = notes.get(event)
            if isinstance(predicted, (int, float)) and event in happened:
                yield event, min(max(float(predicted), 0.0), 1.0), happened[event]


def _happened(evaluation: Evaluation, parent: Evaluation | None, margin: float) -> dict[str, bool]:
    happened = {"compiles": evaluation.status not in _NOT_COMPILED, "passes": evaluation.passed}
    if parent is not None:
        happened["better"] = fitness.faster(evaluation, parent, margin)
    return happened


def _judged(event: str, pairs: Sequence[tuple[float, bool]], bins: int) -> EventCalibration:
    n = len(pairs)
    base = sum(happened for _, happened in pairs) / n
    return EventCalibration(
        event=event,
        predictions=n,
        brier=sum((predicted - happened) ** 2 for predicted, happened in pairs) / n,
        base_brier=base * (1 - base),
        auc=_auc(pairs),
        bins=tuple(_bins(pairs, bins)),
    )


def _bins(pairs: Sequence[tuple[float, bool]], bins: int) -> Iterator[Bin]:
    for number in range(bins):
        inside = [pair for pair in pairs if min(int(pair[0] * bins), bins - 1) == number]
        if inside:
            n, hits = len(inside), sum(happened for _, happened in inside)
            predicted = sum(p for p, _ in inside) / n
            yield Bin(number / bins, (number + 1) / bins, n, predicted, hits / n, wilson(hits, n))


def _auc(pairs: Sequence[tuple[float, bool]]) -> float | None:
    """The probability that an event was predicted higher than a non-event; ties count half."""
    yes = [p for p, happened in pairs if happened]
    no = [p for p, happened in pairs if not happened]
    if not yes or not no:
        return None
    wins = sum((y > x) + 0.5 * (y == x) for y in yes for x in no)
    return wins / (len(yes) * len(no))
