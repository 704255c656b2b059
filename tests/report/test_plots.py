"""The geometry of the plots: every proposal has its own place; the best line never rises."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from report_sample import history

from hipwright.archive import TrialDetail
from hipwright.report.run_plots import LEFT, MAX_LINEAGE, WIDTH, kind_of, lineage, score_plot


@st.composite
def searches(draw: st.DrawFn) -> tuple[TrialDetail, ...]:
    """Any history in which parents come before their children; programs may repeat."""
    found: list[TrialDetail] = []
    for number in range(draw(st.integers(2, 30))):
        keys = [p.program for p in found]
        score = draw(st.none() | st.floats(1e-3, 1e6))
        found.append(
            TrialDetail(
                round=0,
                number=number,
                operator="op",
                program=draw(st.sampled_from([*keys, f"p{number}"])),
                parents=tuple(draw(st.lists(st.sampled_from(keys), max_size=2))) if keys else (),
                status="pass" if score is not None else "wrong_value",
                score=score,
                kept=draw(st.booleans()),
                best=draw(st.booleans()),
            )
        )
    return tuple(found)


@given(searches())
def test_no_two_proposals_share_a_place(proposals: tuple[TrialDetail, ...]) -> None:
    tree = lineage(proposals)
    assert tree is not None
    places = {(point.x, point.y) for point in tree.points}
    assert len(places) == len(tree.points) == len(proposals)
    assert all(LEFT <= point.x <= WIDTH and 0 < point.y < tree.height for point in tree.points)


@given(searches())
def test_the_best_line_only_falls(proposals: tuple[TrialDetail, ...]) -> None:
    plot = score_plot(proposals)
    if all(p.score is None for p in proposals):
        assert plot is None
        return
    assert plot is not None
    heights = [float(y) for y in re.findall(r"(?:V|M[\d.]+,)([\d.]+)", plot.best_path)]
    assert heights == sorted(heights), "lower scores lie lower on the page"
    assert all(0 <= point.y <= plot.height for point in plot.points)
    assert len(plot.points) == len(proposals)


def test_measured_and_estimated_figures_share_no_axis() -> None:
    estimated = history(40)
    timed = [structs.replace(p, score_kind="measured") if p.number % 4 == 0 and p.score else p for p in estimated]
    plain, mixed = score_plot(estimated), score_plot(timed)
    assert plain is not None and plain.kind == "estimate" and mixed is not None and mixed.kind == "measured"
    assert all("(measured)" in point.label for point in mixed.points if point.kind != "failed")
    assert len(mixed.points) < len(plain.points)


def test_long_searches_draw_what_was_kept() -> None:
    proposals = history(700)
    tree = lineage(proposals)
    assert tree is not None and len(tree.points) == MAX_LINEAGE
    assert tree.left_out == 700 - MAX_LINEAGE


def test_kinds() -> None:
    passed = TrialDetail(round=0, number=0, operator="seed", program="a", status="pass", kept=True)
    assert kind_of(passed) == "kept"
    assert kind_of(TrialDetail(round=0, number=1, operator="x", program="b", status="timeout", best=True)) == "failed"
