"""Score over proposals or over time: every verified program, the best so far, and intervals of measured times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hipwright.archive import Evaluated, TrialDetail
from hipwright.measure.stats import median_interval
from hipwright.records import Evaluation
from hipwright.report.run_plots import kind_of, label_of
from hipwright.report.ticks import Tick
from hipwright.view.plots.axis import PixelAxis, fitted

WIDTH, HEIGHT = 960, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 24, 40
MOST_POINTS = 300
"""More new bests than this are thinned, and more others."""


@dataclass(frozen=True)
class Mark:
    """A proposal on the plot. kind: best, kept, rejected or failed; low, high: the ends of its interval, in pixels."""

    x: float
    y: float
    kind: str
    label: str
    number: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class BestPlot:
    """The marks, the best so far as an SVG path, both axes. of: proposals, of which `marks` may be a part."""

    marks: list[Mark]
    path: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    kind: str
    axis: str
    of: int
    intervals: bool
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    floor: int = HEIGHT - BOTTOM


def best_plot(
    trials: Sequence[TrialDetail],
    evaluated: Mapping[int, Evaluated],
    clocks: Mapping[int, float] | None = None,
    started: float = 0.0,
) -> BestPlot | None:
    """The plot over proposals, or with `clocks` (Unix times of evaluations) over seconds since `started`.

    None without a score. Measured, simulated and estimated scores never share an axis: the best kind alone is drawn.
    """
    scored = comparable(trials)
    if not scored:
        return None
    failed = [trial for trial in trials if kind_of(trial) == "failed"]
    place = {
        t.number: (max(clocks[t.number] - started, 0.0) if clocks else float(t.number))
        for t in (*scored, *failed)
        if not clocks or t.number in clocks
    }
    scored, failed = [[t for t in part if t.number in place] for part in (scored, failed)]
    if not scored:
        return None
    x = PixelAxis(0.0, max(max(place.values()), 1.0), LEFT + 8, WIDTH - RIGHT - 8)
    spans = {t.number: interval_us(evaluated[t.number].evaluation) for t in scored if t.number in evaluated}
    shown = thinned(scored)
    ends = [end for t in shown if (span := spans.get(t.number)) for end in span]
    y = fitted([t.score or 0.0 for t in scored] + ends, HEIGHT - BOTTOM - 16, TOP)
    marks = [_mark(t, x(place[t.number]), y, spans.get(t.number)) for t in shown]
    marks += [Mark(x(place[t.number]), HEIGHT - BOTTOM, "failed", label_of(t), t.number) for t in thinned(failed)]
    return BestPlot(
        marks=sorted(marks, key=lambda mark: mark.number),
        path=best_path([(place[t.number], t.score or 0.0) for t in scored], x, y, max(place.values())),
        x_ticks=x.ticks(8, whole=not clocks),
        y_ticks=y.ticks(),
        kind=scored[0].score_kind,
        axis="seconds since the start" if clocks else "proposal",
        of=len(scored) + len(failed),
        intervals=bool(ends),
    )


def comparable(trials: Sequence[TrialDetail]) -> list[TrialDetail]:
    """The verified trials with a score of the best kind that there is: measured, simulated or estimated."""
    scored = [t for t in trials if t.status == "pass" and t.score is not None and t.score > 0]
    kinds = {t.score_kind for t in scored}
    kind = next((kind for kind in ("measured", "simulated") if kind in kinds), "estimate")
    return [t for t in scored if t.score_kind == kind]


def thinned(trials: Sequence[TrialDetail], most: int = MOST_POINTS) -> list[TrialDetail]:
    """At most about twice `most` trials: each n-th new best and the last one, and each n-th of the others."""
    bests = [t.number for t in trials if t.best]
    others = [t.number for t in trials if not t.best]
    shown = {*_each(bests, most), *bests[-1:], *_each(others, most)}
    return [t for t in trials if t.number in shown]


def _each(numbers: Sequence[int], most: int) -> Sequence[int]:
    return numbers[:: max(1, -(-len(numbers) // most))]


def interval_us(evaluation: Evaluation) -> tuple[float, float] | None:
    """The 95 % interval of the median of a measured time, in microseconds; None where it was not measured."""
    for result in evaluation.targets.values():
        if result.timing is not None:
            samples = next((versus.samples_ms for versus in result.timing.versus.values()), ())
            found = median_interval(samples)
            return None if found is None else (1e3 * found[0], 1e3 * found[1])
    return None


def _mark(trial: TrialDetail, x: float, y: PixelAxis, span: tuple[float, float] | None) -> Mark:
    score = trial.score or 0.0
    low, high = (y(span[0]), y(span[1])) if span else (None, None)
    said = f" [{span[0]:.2f}, {span[1]:.2f}] µs with 95 %" if span else ""
    return Mark(x, y(score), kind_of(trial), label_of(trial) + said, trial.number, low, high)


def best_path(places: Sequence[tuple[float, float]], x: PixelAxis, y: PixelAxis, end: float) -> str:
    """The SVG path of the best score so far, as stairs that end at `end`."""
    parts: list[str] = []
    best = float("inf")
    for at, score in sorted(places):
        if score < best:
            parts.append(f"H{x(at)}V{y(score)}" if parts else f"M{x(at)},{y(score)}")
            best = score
    return "".join(parts) + f"H{x(end)}"


def sparkline(trials: Sequence[TrialDetail], width: int = 120, height: int = 28) -> str | None:
    """The SVG path of the best score so far over proposals, in a box of that size; None without two scores."""
    scored = comparable(trials)
    if len(scored) < 2:
        return None
    x = PixelAxis(0.0, max(float(max(t.number for t in trials)), 1.0), 2, width - 2)
    first, least = scored[0].score or 0.0, min(t.score or 0.0 for t in scored)
    y = fitted([first, least], height - 3, 3)
    return best_path([(float(t.number), t.score or 0.0) for t in scored], x, y, x.high)
