"""A data set on one self-contained page: counts and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

from hipwright import __version__
from hipwright.report import formatting, html
from hipwright.report.ticks import Tick

WIDTH, HEIGHT = 460, 210
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 16, 40
MOST = 40
"""The most bars that a list draws; the page states how many are left out."""


@dataclass(frozen=True)
class DatasetPage:
    """The data of the page. figures: of hipwright.dataset.stats; unread: lines that could not be read."""

    title: str
    figures: Mapping[str, Any]
    source: str
    command: str
    unread: int = 0


@dataclass(frozen=True)
class Column:
    """One bar of a histogram, with its tooltip."""

    x: float
    y: float
    width: float
    height: float
    tooltip: str


@dataclass(frozen=True)
class HistogramPlot:
    """Counts over an axis. summary: the counts in words, for screen readers."""

    columns: list[Column]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    axis: str
    summary: str
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class BarRow:
    """One bar of a list. share: of the longest bar."""

    label: str
    count: int
    share: float
    tone: str = "plain"


@dataclass(frozen=True)
class BarList:
    """Counts by name. left_out: the number of names not drawn."""

    rows: list[BarRow]
    left_out: int


def render_dataset(page: DatasetPage) -> str:
    """Renders the page."""
    figures = page.figures
    text: str = (
        html.environment()
        .get_template("dataset.html.j2")
        .render(
            page=page,
            figures=figures,
            version=__version__,
            tiles=_tiles(figures),
            kinds=bar_list(figures["kinds"], bad=("negative",)),
            statuses=bar_list(figures["wrong_by_status"], bad=tuple(figures["wrong_by_status"])),
            lists={
                "Families of operators": bar_list(figures["families"]),
                "Operators a task": bar_list(figures["operators_a_task"]),
                "Data types": bar_list(figures["dtypes"]),
                "Difficulty": bar_list(_in_order(figures["difficulty"], ("easy", "medium", "hard"))),
            },
            operators=bar_list(figures["operators"]),
            coverage=coverage_plot(figures["coverage"]["bins"]) if figures["coverage"]["quantiles"]["count"] else None,
            estimates=estimate_plots(figures["estimate_us"]),
            gains={t: gain_plot(g["bins"]) for t, g in figures["gain"].items() if g["quantiles"]["count"]},
            on_amd=_on_amd(figures),
        )
    )
    return text


def _on_amd(figures: Mapping[str, Any]) -> int:
    return sum(count for device, count in figures["timed"].items() if "(gfx" in device and "(simulated)" not in device)


def _in_order(counts: Mapping[str, int], order: Sequence[str]) -> dict[str, int]:
    known = {name: counts[name] for name in order if name in counts}
    return known | {name: count for name, count in counts.items() if name not in known}


# ---------------------------------------------------------------- tiles and lists


def _tiles(figures: Mapping[str, Any]) -> list[dict[str, str]]:
    tasks = figures["tasks"]
    tiles = [
        _tile("pairs", f"{figures['rows']:,}", f"{figures['correct']:,} right, {figures['wrong']:,} wrong"),
        _tile("tasks", f"{tasks:,}", f"{figures['tasks_verified']:,} with a verified program"),
        _tile(
            "coverage of 0.5 or more", _share(figures["tasks_half_covered"], tasks), f"of {tasks:,} tasks, best program"
        ),
    ]
    for target, build in figures["builds"].items():
        total = build["right_ok"] + build["right_failed"]
        tiles.append(
            _tile(
                f"compiled for {target}",
                _share(build["right_ok"], total),
                f"{build['right_ok']:,} of {total:,} right programs",
            )
        )
    return [
        *tiles,
        _tile("timed on an AMD GPU", f"{_on_amd(figures):,}", f"{sum(figures['timed'].values()):,} timed in all"),
    ]


def _tile(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def _share(count: int, total: int) -> str:
    """A percentage that shows 100 only for a complete share."""
    if not total:
        return formatting.percent(None)
    share = count / total
    return f"{100 * share:.1f} %" if 0.99 <= share < 1 else formatting.percent(share)


def bar_list(counts: Mapping[str, int], bad: Sequence[str] = ()) -> BarList:
    """Counts as bars, the first MOST of them."""
    longest = max(counts.values(), default=1)
    rows = [
        BarRow(name, count, count / longest, formatting.BAD if name in bad else "plain")
        for name, count in list(counts.items())[:MOST]
    ]
    return BarList(rows, max(0, len(counts) - MOST))


# ---------------------------------------------------------------- histograms


def coverage_plot(bins: Sequence[Mapping[str, Any]]) -> HistogramPlot:
    """Verified programs by tenths of coverage."""
    names = [f"{one['low']:.1f} to {one['high']:.1f}" for one in bins]
    ends = [(k / 10, f"{k / 10:g}") for k in range(0, 11, 2)]
    return histogram(names, [one["count"] for one in bins], ends, "coverage")


def estimate_plots(estimates: Mapping[str, Mapping[str, Any]]) -> dict[str, HistogramPlot]:
    """Verified programs over the estimate, by target, on one common logarithmic axis."""
    lows = sorted({_place(one["low"]) for known in estimates.values() for one in known["bins"]})
    if not lows:
        return {}
    first, last = lows[0], lows[-1] + 1
    plots = {}
    for target, known in estimates.items():
        counts = {_place(one["low"]): one["count"] for one in known["bins"]}
        names = [f"{_micros(10 ** (k / 4))} to {_micros(10 ** ((k + 1) / 4))}" for k in range(first, last)]
        step = max(1, ceil((last - first) / 7))
        ends = [
            ((k - first) / (last - first), _micros(10 ** (k / 4), unit=False)) for k in range(first, last + 1, step)
        ]
        plots[target] = histogram(names, [counts.get(k, 0) for k in range(first, last)], ends, "µs, log scale")
    return plots


def _place(low: float) -> int:
    return round(4 * log10(low))


def _micros(value: float, *, unit: bool = True) -> str:
    text = f"{value:.0f}" if value >= 10 else f"{value:.1f}"
    return f"{text} µs" if unit else text


def gain_plot(bins: Sequence[Mapping[str, Any]]) -> HistogramPlot:
    """Tasks by the estimated speedup of their best program over the engine's default program."""
    names = [f"{one['low']:g}× to {one['high']:g}×" if one["high"] else f"{one['low']:g}× and more" for one in bins]
    ends = [(place / len(bins), f"{one['low']:g}×") for place, one in enumerate(bins)]
    return histogram(names, [one["count"] for one in bins], ends, "estimate of the engine's own over the best")


def histogram(
    names: Sequence[str], counts: Sequence[int], ends: Sequence[tuple[float, str]], axis: str
) -> HistogramPlot:
    """A histogram of equal bins. names: of the bins, for tooltips; ends: (share of the axis, label) of the x ticks."""
    span, inner = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    top, step = _round_scale(max(counts))
    width = span / len(counts)
    columns = [
        Column(
            x=round(LEFT + place * width + 1, 1),
            y=round(TOP + inner * (1 - count / top), 1),
            width=round(max(width - 2, 1), 1),
            height=round(inner * count / top, 1),
            tooltip=f"{name}: {count:,}",
        )
        for place, (name, count) in enumerate(zip(names, counts, strict=True))
        if count
    ]
    y_ticks = [Tick(round(TOP + inner * (1 - value / top), 1), f"{value:,}") for value in range(0, top + 1, step)]
    x_ticks = [Tick(round(LEFT + span * share, 1), label) for share, label in ends]
    summary = "; ".join(f"{name}: {count:,}" for name, count in zip(names, counts, strict=True) if count)
    return HistogramPlot(columns, x_ticks, y_ticks, axis, summary)


def _round_scale(most: int) -> tuple[int, int]:
    """Returns (end of the axis, step of its ticks): round numbers, at most five steps."""
    steps = (s * 10**e for e in range(12) for s in (1, 2, 5))
    step = next(s for s in steps if 5 * s >= most)
    return step * max(1, ceil(most / step)), step
