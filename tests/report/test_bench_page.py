"""bench.html: complete, escaped, without scripts, within any screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench_sample import bench_page, mixed, timed_row
from msgspec import structs
from report_sample import HOSTILE
from test_browser import BROWSER, look

from hipwright.evaluation.bench import BenchRow
from hipwright.report import bench_plots
from hipwright.report.bench_page import render_bench

FORM = {
    "name": "n",
    "title": "Neighbour",
    "tolerance": "all close",
    "timing": "the mean",
    "source": "https://example.org",
}


def test_every_row_and_figure_is_there() -> None:
    rows = mixed()
    html = render_bench(bench_page(rows))
    assert all(html.count(row.task) >= 1 for row in rows)
    for text in ("fast_p over p", "Speedup over eager", "Share of the roofline", "The worst 10", "NVIDIA H200 (cuda)"):
        assert text in html
    assert "24 of 25 rows" in html and "1 (device)" in html


def test_without_timing_it_says_so_and_draws_no_speed() -> None:
    row = BenchRow(key="k", task="t", candidate="engine", status="pass", compiled=True, correct=True, coverage=1.0)
    html = render_bench(bench_page([row], not_measured=("nothing was timed: no GPU target ran",)))
    assert "nothing was timed" in html and "fast_p" not in html and "<svg" not in html


def test_kernelbench_mode_names_both_rules() -> None:
    html = render_bench(bench_page(mixed(), mode="kernelbench"))
    assert "KernelBench&#39;s own rule" in html or "KernelBench's own rule" in html
    assert "correct, strict rule" in html and "eager, KernelBench" in html


def test_hostile_names_are_escaped() -> None:
    html = render_bench(bench_page(mixed(8, text=HOSTILE)))
    assert "<script" not in html and HOSTILE not in html


def test_the_axis_is_logarithmic_and_bars_start_at_one() -> None:
    chart = bench_plots.speedup_bars([timed_row(1, 4.0), timed_row(2, 0.25), timed_row(3, None)], "eager")
    assert chart is not None
    fast, slow, failed = chart.bars
    assert fast.x0 == chart.even == slow.x1 and failed.kind == "failed"
    assert fast.x1 - chart.even == pytest.approx(chart.even - slow.x0, abs=0.5), "4x is as far from 1x as 0.25x"
    assert fast.low is not None and fast.low < fast.x1 < (fast.high or 0)


def test_the_curve_ends_at_zero_and_starts_at_the_share_of_correct() -> None:
    curve = bench_plots.fast_curve([timed_row(n, s) for n, s in enumerate((2.0, 3.0, None, 0.5))], ["eager"])
    assert curve is not None
    path = curve.lines[0][2]
    top, bottom = curve.y_ticks[3].at, curve.y_ticks[0].at
    assert path.startswith(f"M56,{top}") and f"V{bottom}" in path


def test_many_rows_are_cut_in_the_plot_and_whole_in_the_table() -> None:
    rows = [timed_row(n, 1.5) for n in range(150)]
    chart = bench_plots.speedup_bars(rows, "eager")
    assert chart is not None and len(chart.bars) == bench_plots.MAX_BARS and chart.left_out == 30
    assert "30 more are in the table below" in render_bench(bench_page(rows))


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium here: scripts/system-deps.sh chromium installs it")
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("text", ["", HOSTILE], ids=["plain", "hostile"])
def test_fits_and_stays_inert(tmp_path: Path, width: int, text: str) -> None:
    seen = look(tmp_path, render_bench(bench_page(mixed(text=text), mode="kernelbench")), width)
    assert seen["scripts"] == 0 and seen["images"] == 0 and seen["resources"] == []
    assert seen["late"] == [], "these elements reach past the right edge"
    assert int(str(seen["wide"])) <= width


def test_categories_and_the_formats_own_rules() -> None:
    rows = [structs.replace(row, category=f"set{row.level}", by_format="pass") for row in mixed(6)]
    page = replace(bench_page(rows), form={**FORM, "no_training": ""})
    html = render_bench(page)
    assert "By category" in html and "set1" in html and "correct, the format&#39;s tolerance" in html
    assert "The rules of Neighbour" in html and FORM["tolerance"] in html and "left out of data sets" not in html
    kept = render_bench(replace(page, form={**FORM, "no_training": "evaluation only"}))
    assert "evaluation only" in kept and "left out of data sets" in kept
    assert "By category" not in render_bench(bench_page([structs.replace(row, category="") for row in rows]))
