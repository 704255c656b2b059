"""Figures over suites: what counts, and the limited effect of a single task."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.measure.fastp import FAILED, LEVELS, TaskSpeedup, capped, fast_p, geometric_mean

SPEEDUPS = st.floats(0.01, 100)


@st.composite
def results(draw: st.DrawFn) -> TaskSpeedup:
    if draw(st.integers(0, 4)) == 0:
        return TaskSpeedup()
    value, width = draw(SPEEDUPS), draw(st.floats(0, 0.3))
    return TaskSpeedup(value, (value * math.exp(-width), value * math.exp(width)), draw(st.none() | SPEEDUPS))


LISTS = st.lists(results(), min_size=1, max_size=30)


@given(LISTS)
def test_fast_p_falls_with_p_and_counts_every_task(found: list[TaskSpeedup]) -> None:
    shares = [fast_p(found, p) for p in LEVELS]
    assert [s.count for s in shares] == sorted((s.count for s in shares), reverse=True)
    for share in shares:
        assert share.total == len(found)
        assert 0 <= share.interval[0] <= share.share <= share.interval[1] <= 1


@given(LISTS, st.sampled_from(LEVELS))
def test_only_a_sure_speedup_counts(found: list[TaskSpeedup], p: float) -> None:
    assert fast_p(found, p).count == sum(r.interval is not None and r.interval[0] > p for r in found)
    unsure = [TaskSpeedup(p * 1.01, (p * 0.99, p * 1.03)), TaskSpeedup(p * 1.5, (p, p * 2)), TaskSpeedup()]
    assert fast_p([*found, *unsure], p).count == fast_p(found, p).count


@given(LISTS, st.floats(1, 1e6))
def test_no_task_counts_for_more_than_its_roofline(found: list[TaskSpeedup], absurd: float) -> None:
    honest = geometric_mean([*found, TaskSpeedup(2.0, (2.0, 2.0), 2.0)])
    cheat = geometric_mean([*found, TaskSpeedup(2.0 * absurd, (2.0, 2.0), 2.0)])
    assert honest is not None and cheat is not None
    assert cheat.value == pytest.approx(honest.value)


@given(LISTS)
def test_the_mean_lies_among_the_speedups_and_in_its_interval(found: list[TaskSpeedup]) -> None:
    values = [one for r in found if (one := capped(r)) is not None]
    mean, everything = geometric_mean(found), geometric_mean(found, failed=FAILED)
    assert everything is not None and everything.tasks == len(found)
    if not values:
        assert mean is None and everything.value == pytest.approx(FAILED)
        return
    assert mean is not None and mean.tasks == len(values)
    assert min(values) * 0.999 <= mean.value <= max(values) * 1.001
    assert mean.value == pytest.approx(np.exp(np.mean(np.log(values))))
    assert mean.interval[0] <= mean.interval[1]
    assert mean.capped == sum(r.speedup is not None and (capped(r) or 0) < r.speedup for r in found)


def test_the_interval_over_tasks_covers_the_truth() -> None:
    """30 tasks drawn from a log-normal population: the 95 % interval holds its mean in about 95 of 100 draws."""
    inside = 0
    for seed in range(200):
        g = np.random.default_rng(seed)
        drawn = [TaskSpeedup(float(v), (float(v), float(v))) for v in np.exp(g.normal(0.3, 0.5, 30))]
        mean = geometric_mean(drawn, seed=seed)
        assert mean is not None
        inside += mean.interval[0] <= math.exp(0.3) <= mean.interval[1]
    assert 176 <= inside <= 198


def test_nothing_attempted_is_nothing() -> None:
    assert fast_p([], 1.0).share == 0.0 and fast_p([], 1.0).total == 0
    assert geometric_mean([]) is None
