"""The geometry of the training report's plots: curves over steps, and dots with intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

from hipwright.report.ticks import Tick
from hipwright.report.train_data import ORDER, Points, TrainingLog

WIDTH, HEIGHT = 520, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 26
MAX_POINTS = 240  # of a line; more are averaged
SMOOTH = 20  # the smoothing window is 1 / SMOOTH of a line
NAMES, ROW, HEAD = 92, 19, 24
COLOURS = {arm: place for place, arm in enumerate(ORDER)}
"""Arms with a fixed colour; others take the remaining colours in order."""
OTHERS = (5, 6, 7)


@dataclass(frozen=True)
class Series:
    """A curve to draw. colour: 0 to 7; dashed: for a second seed or held-out data."""

    name: str
    colour: int
    points: Points
    dashed: bool = False


@dataclass(frozen=True)
class CurveLine:
    """A drawn curve. path: smoothed; raw: as logged, "" if that is the same."""

    name: str
    colour: int
    dashed: bool
    path: str
    raw: str


@dataclass(frozen=True)
class Chart:
    """Curves over steps."""

    title: str
    lines: list[CurveLine]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Dot:
    """One arm's figure with its interval. low, high: in pixels, None without an interval."""

    y: float
    label: str
    colour: int
    x: float
    low: float | None
    high: float | None
    text: str
    tooltip: str


@dataclass(frozen=True)
class Dots:
    """A metric by split (heads: y and name) and arm."""

    title: str
    heads: list[Tick]
    dots: list[Dot]
    ticks: list[Tick]
    height: float
    width: int = WIDTH


class PlotAxis:
    """Maps values to pixels, linear or logarithmic. start, end: pixels of the lowest and highest value."""

    def __init__(self, values: Iterable[float], start: float, end: float, *, log: bool = False) -> None:
        known = list(values)
        low, high = min(known), max(known)
        self._log = log and low > 0
        if self._log:
            self.ticks = [
                base * 10.0**power
                for power in range(floor(log10(low)), ceil(log10(high)) + 1)
                for base in (1, 2, 5)
                if 0.8 * low <= base * 10.0**power <= 1.25 * high
            ]
            self._low, self._high = (log10(one) for one in (0.9 * low, 1.1 * high))
        else:
            self.ticks = nice(low, high)
            self._low, self._high = min(low, self.ticks[0]), max(high, self.ticks[-1])
        self._start, self._end = start, end

    @classmethod
    def exact(cls, values: Iterable[float], start: float, end: float) -> PlotAxis:
        """An axis of whole numbers that ends exactly at the lowest and highest value."""
        known = list(values)
        axis = cls(known, start, end)
        axis._low, axis._high = min(known), max(known)
        axis.ticks = [tick for tick in axis.ticks if axis._low <= tick <= axis._high and tick == int(tick)]
        return axis

    def __call__(self, value: float) -> float:
        """The pixel position of a value."""
        at = (log10(value) if self._log else value) - self._low
        return round(self._start + at / (self._high - self._low) * (self._end - self._start), 1)

    def labelled(self, label: Callable[[float], str]) -> list[Tick]:
        """The ticks with labels."""
        return [Tick(self(value), label(value)) for value in self.ticks]


def nice(low: float, high: float, about: int = 4) -> list[float]:
    """Round values from below `low` to above `high` in about `about` steps."""
    span = (high - low) or abs(high) or 1.0
    rough = span / about
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [step * n for n in range(first, max(last, first + 1) + 1)]


def percent(value: float) -> str:
    """The label of a share."""
    return f"{100 * value:.3g} %"


def plain(value: float) -> str:
    """The label of any other value."""
    if 0 < abs(value) < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{float(mantissa):g}e{int(power)}"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 and value % 1000 == 0 else f"{value:.4g}"


# ---------------------------------------------------------------- curves


def colours(arms: Iterable[str]) -> dict[str, int]:
    """Assigns a colour to each arm for the whole page."""
    found: dict[str, int] = {}
    free = [*OTHERS, *(colour for arm, colour in COLOURS.items() if arm not in set(arms))]
    for arm in dict.fromkeys(arms):
        found[arm] = COLOURS[arm] if arm in COLOURS else free[(len(found)) % len(free)]
    return found


def series(trainings: Sequence[TrainingLog], stage: str, metric: str, palette: Mapping[str, int]) -> list[Series]:
    """The curves of one metric, for every training that logs it."""
    found = []
    for training in trainings:
        points = training.curves.get(stage, {}).get(metric)
        if points:
            found.append(Series(training.name, palette[training.arm], points, bool(training.seed)))
    return found


def chart(
    title: str, lines: Sequence[Series], *, share: bool = False, holds: Sequence[float] = (), log: bool = False
) -> Chart | None:
    """The chart of some curves; None without points. share: values in percent. holds: values that the axis includes.

    log: use a logarithmic axis if the values span more than a decade.
    """
    values = [value for line in lines for _, value in line.points]
    steps = [step for line in lines for step, _ in line.points]
    if not values:
        return None
    wide = log and min(values) > 0 and max(values) > 10 * min(values)
    y = PlotAxis([*values, *holds], HEIGHT - BOTTOM, TOP, log=wide)
    x = PlotAxis.exact([0, max(steps) or 1], LEFT, WIDTH - RIGHT - 8)
    drawn = [
        CurveLine(one.name, one.colour, one.dashed, _path(smoothed(one.points), x, y), _raw(one.points, x, y))
        for one in lines
    ]
    return Chart(title, drawn, x.labelled(plain), y.labelled(percent if share else plain))


def smoothed(points: Points) -> Points:
    """Averages each value over a window of 1 / SMOOTH of the curve, shorter at the ends."""
    half = len(points) // SMOOTH // 2
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    found = []
    for place, (step, _) in enumerate(points):
        first, last = max(0, place - half), min(len(points), place + half + 1)
        found.append((step, (sums[last] - sums[first]) / (last - first)))
    return thinned(found)


def thinned(points: Points) -> Points:
    """Reduces a curve to about MAX_POINTS by averaging neighbours; keeps the first and last point."""
    if len(points) <= MAX_POINTS:
        return points
    size = -(-len(points) // MAX_POINTS)
    middle = points[1:-1]
    groups = [middle[start : start + size] for start in range(0, len(middle), size)]
    means = [(group[len(group) // 2][0], sum(value for _, value in group) / len(group)) for group in groups]
    return [points[0], *means, points[-1]]


def _raw(points: Points, x: PlotAxis, y: PlotAxis) -> str:
    return _path(thinned(points), x, y) if len(points) // SMOOTH // 2 else ""


def _path(points: Points, x: PlotAxis, y: PlotAxis) -> str:
    """The SVG path of a polyline; a single point becomes a short dash."""
    if len(points) == 1:
        (step, value) = points[0]
        return f"M{x(step) - 3},{y(value)}h6"
    return "M" + "L".join(f"{x(step)},{y(value)}" for step, value in points)


# ---------------------------------------------------------------- intervals


def dots(
    title: str, rows: Sequence[Mapping[str, Any]], metric: str, palette: Mapping[str, int], *, share: bool = True
) -> Dots | None:
    """Plots a metric of pooled evaluation rows by split and arm; None if no row has it."""
    known = [row for row in rows if triple(row.get(metric)) is not None]
    if not known:
        return None
    ends = [end for row in known for end in triple(row[metric]) or ()]
    axis = PlotAxis([*ends, 0.0, *([1.0] if share else [])], NAMES, WIDTH - 56)
    heads, drawn, y = [], [], 0.0
    for split in dict.fromkeys(row.get("split") for row in known):
        heads.append(Tick(y + 15, str(split or "all tasks")))
        y += HEAD
        for row in known:
            if row.get("split") == split:
                drawn.append(_dot(row, metric, axis, y, palette, share))
                y += ROW
    return Dots(title, heads, drawn, axis.labelled(percent if share else plain), y + BOTTOM)


def _dot(row: Mapping[str, Any], metric: str, axis: PlotAxis, y: float, palette: Mapping[str, int], share: bool) -> Dot:
    value, low, high = triple(row[metric]) or (0.0, 0.0, 0.0)
    arm = str(row.get("arm", ""))
    said = [f"{100 * one:.1f} %" if share else f"{one:.3f}" for one in (value, low, high)]
    tooltip = f"{arm}: {said[0]}, 95 % interval {said[1]} to {said[2]}"
    text = f"{100 * value:.0f} %" if share else f"{value:.2f}"
    return Dot(y + 9, arm, palette.get(arm, 0), axis(value), axis(low), axis(high), text, tooltip)


def triple(value: Any) -> tuple[float, float, float] | None:
    """Reads [value, low, high] of evaluation.json; None for anything else."""
    if isinstance(value, (list, tuple)) and len(value) == 3 and all(isinstance(one, (int, float)) for one in value):
        return float(value[0]), float(value[1]), float(value[2])
    return None
