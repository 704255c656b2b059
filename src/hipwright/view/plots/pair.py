"""The best so far of two runs of one task on one pair of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hipwright.archive import TrialDetail
from hipwright.report.ticks import Tick
from hipwright.view.plots.axis import PixelAxis, fitted
from hipwright.view.plots.best import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, best_path, comparable


@dataclass(frozen=True)
class PairCurves:
    """The SVG paths of both runs, and both axes."""

    first: str
    second: str
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    kind: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT


def pair_curves(first: Sequence[TrialDetail], second: Sequence[TrialDetail]) -> PairCurves | None:
    """The curves, each to its run's last proposal; None where one has no score, or the kinds of scores differ."""
    both = [comparable(first), comparable(second)]
    kinds = {t.score_kind for trials in both for t in trials}
    if not all(both) or len(kinds) != 1:
        return None
    last = max(first[-1].number, second[-1].number)
    x = PixelAxis(0.0, max(float(last), 1.0), LEFT + 8, WIDTH - RIGHT - 8)
    y = fitted([t.score or 0.0 for trials in both for t in trials], HEIGHT - BOTTOM, TOP)
    paths = [
        best_path([(float(t.number), t.score or 0.0) for t in found], x, y, float(all_[-1].number))
        for found, all_ in zip(both, (first, second), strict=True)
    ]
    return PairCurves(paths[0], paths[1], x.ticks(8, whole=True), y.ticks(), kinds.pop())
