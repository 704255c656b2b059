"""A measured target on the page: device, interval, and the place of every pair."""

from __future__ import annotations

import re
from itertools import pairwise
from math import exp, isfinite

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from report_sample import measured, sample

from hipwright.measure.describe import describe_device
from hipwright.records import TargetResult, Timing, Verdict, Versus
from hipwright.report import render
from hipwright.report.pair_plot import HEIGHT, pair_plot
from hipwright.report.run_plots import LEFT, RIGHT, WIDTH
from hipwright.report.run_views import timing_view


def timing(target: str = "cuda") -> Timing:
    found = measured(target=target).timing
    assert found is not None
    return found


def test_the_page_shows_what_was_measured_and_where() -> None:
    html = render(sample())
    for fact in (
        "MEASURED",
        "HIP on NVIDIA H200",
        "sm_90",
        "1.52× (1.51 to 1.53)",
        "0.0421 ms a call",
        "a captured graph",
        "73 % of 0.0309 ms, bound by memory",
        "differ by 0.1 %",
        "98 % of the device time",
        "1.31×",
        "precise enough",
        "Every pair against eager",
        "fresh process",
        "it says nothing of an AMD GPU",
    ):
        assert fact in html.replace("&#39;", "'"), fact


def test_an_nvidia_figure_is_never_anything_else() -> None:
    words = re.sub(r"<[^>]+>", " ", render(sample()))
    assert words.count("H200") == words.count("HIP on NVIDIA H200") >= 3
    assert describe_device("rocm", timing("rocm")) == "AMD Instinct MI300X"
    assert describe_device("cuda", timing()) == "HIP on NVIDIA H200"


def test_a_baseline_that_may_be_equal_is_not_called_beaten() -> None:
    rows = {row["baseline"]: row for row in timing_view("cuda", timing())["rows"]}
    assert rows["eager"]["tone"] == "good" and rows["compile"]["tone"] == "unsure"
    assert rows["eager"]["speedup"] == "1.52× (1.51 to 1.53)"
    assert rows["compile"]["speedup"] == "1.004× (0.996 to 1.012)"


@given(
    st.lists(st.tuples(st.floats(1e-4, 1e3), st.floats(1e-4, 1e3)), min_size=2, max_size=60),
    st.floats(-3, 3),
    st.floats(0, 0.5),
)
def test_every_pair_has_a_place_and_the_band_holds_the_median(
    pairs: list[tuple[float, float]], middle: float, half: float
) -> None:
    own, base = zip(*pairs, strict=True)
    versus = Versus(
        baseline="eager",
        speedup=exp(middle),
        interval=(exp(middle - half), exp(middle + half)),
        samples_ms=own,
        baseline_ms=base,
        pairs=len(own),
    )
    plot = pair_plot(versus)
    assert plot is not None and len(plot.points) == len(pairs)
    for point in plot.points:
        assert LEFT <= point.x <= WIDTH - RIGHT and 0 <= point.y <= HEIGHT and isfinite(point.y)
    assert plot.band_top - 0.2 <= plot.middle <= plot.band_top + plot.band_height + 0.2
    assert 1 <= len(plot.ticks) <= 8 and all(0 <= tick.at <= HEIGHT for tick in plot.ticks)
    heights = [
        point.y for _, point in sorted(zip(base_over(pairs), plot.points, strict=True), key=lambda item: item[0])
    ]
    assert all(a >= b - 0.11 for a, b in pairwise(heights)), "faster lies higher"


def base_over(pairs: list[tuple[float, float]]) -> list[float]:
    return [base / own for own, base in pairs]


def test_a_spike_is_drawn_at_the_edge_and_counted() -> None:
    versus = timing().versus["eager"]
    plot = pair_plot(versus)
    assert plot is not None and plot.clipped == 2 == sum(p.clipped for p in plot.points)
    assert plot.even is None, "speedup 1 is too far off to be worth the room"
    near = pair_plot(timing().versus["compile"])
    assert near is not None and near.even is not None


def test_what_cannot_be_drawn_is_left_out() -> None:
    versus = Versus(baseline="x", speedup=1.0, interval=(0.9, 1.1), samples_ms=(1.0,), baseline_ms=(1.0,), pairs=1)
    assert pair_plot(versus) is None


def test_the_verdict_shown_is_the_one_that_decided() -> None:
    right = TargetResult(target="cpu", verdict=Verdict(status="pass", workloads=("given",)))
    gap = {"rule": "device and host", "disagree_ms": 0.75}
    doubted = TargetResult(target="cuda", verdict=Verdict(status="untrusted", stage="measure", evidence=gap))
    data = sample()
    assert data.evaluation is not None
    found = structs.replace(data.evaluation, status="untrusted", targets={"cpu": right, "cuda": doubted})
    html = render(structs.replace(data, evaluation=found))
    assert "device and host" in html and "0.75" in html and "badge unsure" in html
