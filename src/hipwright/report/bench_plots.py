"""The geometry of a benchmark's plots: speedup bars, the fast_p curve, roofline fractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from hipwright.evaluation.bench import BenchRow
from hipwright.report.ticks import Tick

WIDTH = 960
NAMES, RIGHT, TOP, BOTTOM = 260, 70, 24, 34
ROW = 20
CURVE_HEIGHT, CURVE_LEFT = 300, 56
MAX_BARS = 120  # the table has all rows
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class SpeedupBar:
    """One bar from x0 to x1 with its interval from low to high; kind "failed" has text only."""

    y: float
    label: str
    text: str
    tooltip: str
    kind: str
    x0: float = 0.0
    x1: float = 0.0
    low: float | None = None
    high: float | None = None
    text_x: float = 0.0


@dataclass(frozen=True)
class Bars:
    """A bar chart. even: where the bars start (1x or 0 %)."""

    bars: list[SpeedupBar]
    ticks: list[Tick]
    even: float
    height: float
    left_out: int
    width: int = WIDTH


@dataclass(frozen=True)
class Curve:
    """The share of rows certainly faster than p, over p. lines: (name, kind, SVG path)."""

    lines: list[tuple[str, str, str]]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    even: float
    width: int = WIDTH
    height: int = CURVE_HEIGHT


class LogAxis:
    """A logarithmic horizontal axis from `start` to `end` pixels, with round ticks inside [low, high]."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = min(low, 0.5) * 0.9, max(high, 2.0) * 1.1
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        """The pixel position of a value, clipped to the axis."""
        clipped = min(max(value, self.low), self.high)
        share = (log10(clipped) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[Tick]:
        """Round values within the axis."""
        inside = [step for step in _STEPS if self.low <= step <= self.high]
        return [Tick(self(step), f"{step:g}×") for step in inside]


def label_of(row: BenchRow) -> str:
    """The task's name, with the sample's number unless it is the first."""
    return f"{row.task} #{row.sample}" if row.sample else row.task


def speedup_bars(rows: Sequence[BenchRow], baseline: str) -> Bars | None:
    """Judged rows by speedup, the fastest first, failures last; None if nothing was timed against the baseline."""
    timed = [row for row in rows if row.judged and row.correct and baseline in row.speedups]
    if not timed:
        return None
    timed.sort(key=lambda row: -row.speedups[baseline].speedup)
    ends = [end for row in timed for end in row.speedups[baseline].interval]
    axis = LogAxis(min(ends), max(ends), NAMES, WIDTH - RIGHT)
    failed = [row for row in rows if row.judged and not row.correct]
    shown = [*timed, *failed][:MAX_BARS]
    bars = [_speedup_bar(row, baseline, axis, TOP + ROW * place) for place, row in enumerate(shown)]
    height = TOP + ROW * len(shown) + BOTTOM
    return Bars(bars, axis.ticks(), axis(1.0), height, len(timed) + len(failed) - len(shown))


def _speedup_bar(row: BenchRow, baseline: str, axis: LogAxis, y: float) -> SpeedupBar:
    label, one = label_of(row), row.speedups.get(baseline)
    if not row.correct or one is None:
        return SpeedupBar(y, label, row.status, f"{label}: {row.status} {row.message}", "failed", text_x=axis(1.0) + 6)
    (low, high), even = one.interval, axis(1.0)
    x = axis(one.speedup)
    kind = "good" if low > 1 else "bad" if high < 1 else "unsure"
    text = f"{one.speedup:.2f}×"
    tooltip = f"{label}: {text} against {baseline}, 95 % interval {low:.3f} to {high:.3f}"
    right = max(x, axis(high), even) + 6
    return SpeedupBar(y, label, text, tooltip, kind, min(even, x), max(even, x), axis(low), axis(high), right)


def roofline_bars(rows: Sequence[BenchRow]) -> Bars | None:
    """Correct rows by roofline fraction, the best first; None if no floor is known."""
    known = [row for row in rows if row.judged and row.correct and row.roofline_fraction is not None]
    if not known:
        return None
    known.sort(key=lambda row: -(row.roofline_fraction or 0.0))
    shown = known[:MAX_BARS]
    span = WIDTH - RIGHT - NAMES
    bars = []
    for place, row in enumerate(shown):
        share = row.roofline_fraction or 0.0
        x = NAMES + span * min(share, 1.0)
        text = f"{100 * share:.0f} %" + (f" {row.bound}" if row.bound else "")
        tip = f"{label_of(row)}: {100 * share:.1f} % of the roofline"
        bars.append(
            SpeedupBar(TOP + ROW * place, label_of(row), text, tip, "plain", NAMES, round(x, 1), text_x=round(x, 1) + 6)
        )
    ticks = [Tick(NAMES + span * i / 4, f"{25 * i} %") for i in range(5)]
    return Bars(bars, ticks, NAMES, TOP + ROW * len(shown) + BOTTOM, len(known) - len(shown))


def fast_curve(rows: Sequence[BenchRow], baselines: Sequence[str]) -> Curve | None:
    """fast_p over p for each baseline, as a share of all judged rows; None if nothing was timed."""
    judged = [row for row in rows if row.judged]
    lows = {
        name: sorted(row.speedups[name].interval[0] for row in judged if row.correct and name in row.speedups)
        for name in baselines
    }
    every = [low for values in lows.values() for low in values if low > 0]
    if not every:
        return None
    axis = LogAxis(min(every), max(every), CURVE_LEFT, WIDTH - RIGHT)
    bottom = CURVE_HEIGHT - BOTTOM

    def y_of(share: float) -> float:
        return round(bottom - share * (bottom - TOP), 1)

    lines = []
    for place, (name, values) in enumerate(lows.items()):
        path = f"M{CURVE_LEFT},{y_of(len(values) / len(judged))}"
        for index, low in enumerate(values):
            path += f"H{axis(low)}V{y_of((len(values) - index - 1) / len(judged))}"
        lines.append((name, ("first", "second", "third")[min(place, 2)], f"{path}H{WIDTH - RIGHT}"))
    y_ticks = [Tick(y_of(i / 4), f"{25 * i} %") for i in range(5)]
    return Curve(lines, axis.ticks(), y_ticks, axis(1.0))
