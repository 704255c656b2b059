"""Calibration of the screener over all runs of an archive: Brier score, reliability with intervals, AUC.

Only proposed programs are judged, so the figures hold for programs that the screener let through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TypeVar

from hipwright.archive import Archive, Outline, RunLog, continue_outline
from hipwright.archive.log import AUTHOR_NOTE
from hipwright.records import Evaluation
from hipwright.search import fitness
from hipwright.search.interfaces import INFRASTRUCTURE

EVENTS = ("compiles", "passes", "better")
Author = TypeVar("Author", bound=str | None)
Pairs = Counter[tuple[float, bool]]
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
    return calibrations(archive, [author], bins)[author]


def calibrations(archive: Archive, authors: Sequence[Author], bins: int = 5) -> dict[Author, Calibration]:
    """`calibration` of several authors, which reads the archive once; a page of a run's events at a time."""
    found = {author: _Predictions() for author in authors}
    for run in archive.each_run():
        if (log := _outlined(archive, run.id)) is not None:
            for author in authors:
                found[author].add(log, author)
    return {
        author: Calibration(one.runs, {event: _judged(event, pairs, bins) for event, pairs in one.of.items() if pairs})
        for author, one in found.items()
    }


@dataclass
class _Predictions:
    """What was predicted: by event, how often each (prediction, whether it happened) was; runs: with predictions.

    Predictions are stored with four digits, so these are few, however many predictions there are.
    """

    runs: int = 0
    of: dict[str, Pairs] = field(default_factory=lambda: {event: Counter() for event in EVENTS})

    def add(self, log: RunLog, author: str | None) -> None:
        """Adds those of a run."""
        found = list(_predictions(log, author))
        self.runs += bool(found)
        for event, predicted, happened in found:
            self.of[event][predicted, happened] += 1


def _outlined(archive: Archive, run: str) -> RunLog | None:
    """A run's proposals, and its evaluations in outline; None for one without predictions, of which these are not
    read.
    """
    outline = Outline()
    continue_outline(archive, run, outline, ("run_started", "proposed"))
    if not any(isinstance(one.notes.get("screener"), dict) for one in outline.log.proposed.values()):
        return None
    outline.following = 0
    continue_outline(archive, run, outline, ("evaluated",))
    return outline.log


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


def _judged(event: str, pairs: Pairs, bins: int) -> EventCalibration:
    n = pairs.total()
    base = _happened_of(pairs) / n
    return EventCalibration(
        event=event,
        predictions=n,
        brier=sum((predicted - happened) ** 2 * count for (predicted, happened), count in pairs.items()) / n,
        base_brier=base * (1 - base),
        auc=_auc(pairs),
        bins=tuple(_bins(pairs, bins)),
    )


def _happened_of(pairs: Pairs) -> int:
    return sum(count for (_, happened), count in pairs.items() if happened)


def _bins(pairs: Pairs, bins: int) -> Iterator[Bin]:
    inside: list[Pairs] = [Counter() for _ in range(bins)]
    for pair, count in pairs.items():
        inside[min(int(pair[0] * bins), bins - 1)][pair] = count
    for number, found in enumerate(inside):
        if found:
            n, hits = found.total(), _happened_of(found)
            predicted = sum(p * count for (p, _), count in found.items()) / n
            yield Bin(number / bins, (number + 1) / bins, n, predicted, hits / n, wilson(hits, n))


def _auc(pairs: Pairs) -> float | None:
    """The probability that an event was predicted higher than a non-event; ties count half."""
    yes = _happened_of(pairs)
    no = pairs.total() - yes
    if not yes or not no:
        return None
    wins, below = 0.0, 0  # non-events that were predicted lower
    for predicted in sorted({p for p, _ in pairs}):
        wins += pairs[predicted, True] * (below + 0.5 * pairs[predicted, False])
        below += pairs[predicted, False]
    return wins / (yes * no)
