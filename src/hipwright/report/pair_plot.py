"""The geometry of the paired-samples plot: one dot per pair, the median and its interval as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor, isfinite, log, log10

from hipwright.records import Versus
from hipwright.report.run_plots import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from hipwright.report.ticks import Tick

HEIGHT = 200
MARGIN = 1.0
"""The axis spans the middle 90 % of the pairs plus half this share of their span on each side; others are clipped."""


@dataclass(frozen=True)
class PairPoint:
    """One pair. clipped: it lies outside the axis and is drawn at its edge."""

    x: float
    y: float
    label: str
    clipped: bool


@dataclass(frozen=True)
class PairPlot:
    """The speedup of each pair in measured order, on a logarithmic axis. even: the place of speedup 1, if shown."""

    points: list[PairPoint]
    middle: float
    band_top: float
    band_height: float
    even: float | None
    ticks: list[Tick]
    clipped: int
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT


def pair_plot(versus: Versus) -> PairPlot | None:
    """The plot of one comparison; None for fewer than two pairs or invalid figures."""
    pairs = zip(versus.samples_ms, versus.baseline_ms, strict=False)
    logs = [log(base / own) for own, base in pairs if own > 0 and base > 0 and isfinite(base / own)]
    if len(logs) < 2 or not 0 < versus.interval[0] <= versus.speedup <= versus.interval[1]:
        return None
    axis = _Axis(logs, [log(v) for v in (versus.speedup, *versus.interval)])
    points = [_point(i, len(logs), value, axis) for i, value in enumerate(logs)]
    top, bottom = axis(log(versus.interval[1])), axis(log(versus.interval[0]))
    even = axis(0.0) if axis.low <= 0.0 <= axis.high else None
    clipped = sum(point.clipped for point in points)
    return PairPlot(
        points, axis(log(versus.speedup)), top, max(1.0, round(bottom - top, 1)), even, axis.ticks(), clipped
    )


class _Axis:
    """A vertical axis over log speedup; faster is higher."""

    def __init__(self, logs: Sequence[float], must_show: Sequence[float]) -> None:
        ordered = sorted(logs)
        cut = len(ordered) // 20
        low, high = ordered[cut], ordered[-1 - cut]
        pad = max(MARGIN * (high - low) / 2, 0.002)
        self.low, self.high = min(low - pad, *must_show), max(high + pad, *must_show)
        for edge in (self.low, self.high):  # include speedup 1 if it is near
            if abs(edge) < (self.high - self.low) / 2:
                self.low, self.high = min(self.low, -0.002), max(self.high, 0.002)

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)

    def ticks(self) -> list[Tick]:
        """Round speedups, three to seven of them."""
        low, high = exp(self.low), exp(self.high)
        size = 10.0 ** floor(log10((high - low) / 4))
        step = next(k * size for k in (1, 2, 5, 10) if (high - low) / (k * size) <= 6)
        digits = max(0, -floor(log10(step) + 1e-9))
        values = [step * n for n in range(ceil(low / step), floor(high / step) + 1)]
        return [Tick(self(log(v)), f"{v:.{digits}f}×") for v in values if v > 0]


def _point(place: int, count: int, value: float, axis: _Axis) -> PairPoint:
    x = round(LEFT + 8 + (WIDTH - LEFT - RIGHT - 16) * place / (count - 1), 1)
    clipped = not axis.low <= value <= axis.high
    return PairPoint(x, axis(value), f"pair {place + 1}: {exp(value):.4f}×", clipped)
