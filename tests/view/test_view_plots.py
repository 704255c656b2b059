"""Axes and plots: every value has a place, ticks are round, long runs are thinned without losing a best."""

from __future__ import annotations

import re
from math import isfinite

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.archive import Evaluated, TrialDetail
from hipwright.measure.stats import median_interval
from hipwright.records import Evaluation
from hipwright.view.plots.axis import PixelAxis, fitted
from hipwright.view.plots.best import MOST_POINTS, best_plot, interval_us, sparkline, thinned
from hipwright.view.plots.grid import map_grid
from hipwright.view.plots.pair import pair_curves
from hipwright.view.plots.roofline import roofline
from tests.report.report_sample import history, sample
from tests.view.view_sample import _evaluation

POSITIVE = st.floats(1e-6, 1e9)


@given(st.lists(POSITIVE, min_size=1, max_size=30))
def test_every_value_lies_on_its_axis_in_order(values: list[float]) -> None:
    axis = fitted(values, 280, 24)
    places = [axis(value) for value in sorted(values)]
    assert all(isfinite(place) and 24 <= place <= 280 for place in places)
    assert places == sorted(places, reverse=True)


@given(POSITIVE, st.floats(1e-6, 1e6), st.booleans(), st.integers(2, 9))
def test_ticks_are_few_and_lie_on_the_axis(low: float, span: float, log: bool, count: int) -> None:
    axis = PixelAxis(low, low + span, 0, 900, log=log)
    ticks = axis.ticks(count)
    assert 0 <= len(ticks) <= 16 and all(0 <= tick.at <= 900 for tick in ticks)


def test_ticks_are_round() -> None:
    assert [tick.label for tick in PixelAxis(0, 14, 0, 100).ticks(8)] == ["0", "2", "4", "6", "8", "10", "12", "14"]
    assert [tick.label for tick in PixelAxis(0, 4, 0, 100).ticks(8, whole=True)] == ["0", "1", "2", "3", "4"]
    assert [tick.label for tick in PixelAxis(1.4, 120, 0, 100, log=True).ticks()] == ["2", "5", "10", "20", "50", "100"]


def test_the_best_line_falls_and_ends_at_the_edge() -> None:
    trials = history(40)
    plot = best_plot(trials, {})
    assert plot is not None and not plot.intervals
    heights = [float(y) for y in re.findall(r"[V,](-?[\d.]+)", plot.path)]
    assert heights == sorted(heights), "smaller times are drawn lower"
    assert len(heights) == sum(trial.best for trial in trials)
    assert {mark.number for mark in plot.marks} == {trial.number for trial in trials}


def test_over_time_only_what_has_a_clock_is_drawn() -> None:
    trials = history(40)
    clocks = {trial.number: 1000.0 + 3 * trial.number for trial in trials[:20]}
    plot = best_plot(trials, {}, clocks, 1000.0)
    assert plot is not None and plot.axis == "seconds since the start"
    assert {mark.number for mark in plot.marks} == set(range(20))
    assert best_plot(trials, {}, {99999: 1.0}, 1000.0) is None


def test_measured_and_estimated_times_share_no_axis() -> None:
    trials = list(history(10))
    trials[4] = msgspec.structs.replace(trials[4], status="pass", score=1.0, score_kind="measured")
    plot = best_plot(trials, {})
    assert plot is not None and plot.kind == "measured"
    assert [mark.number for mark in plot.marks if mark.kind != "failed"] == [4]
    assert pair_curves(trials, history(10)) is None and pair_curves(history(10), history(12)) is not None


def test_a_long_run_is_thinned_without_losing_its_best() -> None:
    trials = history(9000)
    assert sum(trial.best for trial in trials) > 3 * MOST_POINTS
    plot = best_plot(trials, {})
    assert plot is not None and len(plot.marks) <= 3 * MOST_POINTS + 2 and plot.of == 9000
    assert max(t.number for t in trials if t.best) in {mark.number for mark in plot.marks}
    assert thinned(trials[:300]) == list(trials[:300])


def test_intervals_are_those_of_the_samples() -> None:
    data = sample()
    assert data.evaluation is not None
    low, high = interval_us(data.evaluation) or (0.0, 0.0)
    timing = data.evaluation.targets["cuda"].timing
    assert timing is not None
    samples = sorted(1e3 * ms for ms in timing.versus["eager"].samples_ms)
    assert samples[0] < low < samples[len(samples) // 2] < high < samples[-1]
    assert median_interval(samples[:7]) is None


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_trials_have_no_sparkline(count: int) -> None:
    scored = [trial for trial in history(9) if trial.status == "pass"]
    assert (sparkline(scored[:count]) is None) == (count < 2)


def test_the_grid_has_the_fastest_of_each_cell() -> None:
    def trial(number: int, score: float) -> TrialDetail:
        return TrialDetail(
            number=number,
            round=0,
            operator="o",
            program=f"p{number}",
            status="pass",
            score=score,
            score_kind="estimate",
        )

    def found(memory: float) -> Evaluated:
        features = {"memory_level": memory, "compute_level": 0.0, "parallelism_level": 0.99}
        return Evaluated(evaluation=Evaluation(task="t", program="p", status="pass", features=features))

    trials = [trial(0, 20.0), trial(1, 10.0), trial(2, 15.0), trial(3, 5.0)]
    grid = map_grid(trials, {0: found(0.1), 1: found(0.1), 2: found(0.8)})
    assert grid is not None and grid.filled == 2
    top, bottom = grid.layers[3].rows[0][0], grid.layers[3].rows[3][0]
    assert (top.number, bottom.number, bottom.programs) == (2, 1, 2)
    assert (bottom.rank, top.rank) == (4, 2) and not any(cell.number for row in grid.layers[0].rows for cell in row)
    assert map_grid(trials, {}) is None


def test_the_roofline_holds_each_estimated_kernel_below_the_roof() -> None:
    data = sample()
    assert data.program is not None
    plot = roofline(_evaluation(data.task, data.program, 2, "", True))
    assert plot is not None and [name for name, _ in plot.shapes] == ["gfx942"]
    point = plot.points[0]
    assert "25 % of the issue rate" in point.label, "1 of 4 microseconds"
    balance = 1e-6 * 5.3e12 / 2.1e6
    assert f"{100 * 0.25 / balance:.0f} % of the bandwidth" in point.label
    roof = float(re.findall(r"L[\d.]+,([\d.]+)H", plot.roof)[0])
    assert point.y > roof, "below the roof is further down"
    assert roofline(Evaluation(task="t", program="p", status="parse_error")) is None
