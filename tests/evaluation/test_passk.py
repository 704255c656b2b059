"""pass@k: the estimator against its definition, by enumeration and by expectation; coverage of its intervals."""

from __future__ import annotations

from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.evaluation.passk import AtK, Samples, at_k, curve, interval, pass_at_k, per_solved


@st.composite
def counts(draw: st.DrawFn, most: int = 9) -> tuple[int, int, int]:
    total = draw(st.integers(1, most))
    return total, draw(st.integers(0, total)), draw(st.integers(1, total))


@given(counts())
def test_it_is_the_share_of_subsets_with_a_good_one(drawn: tuple[int, int, int]) -> None:
    total, good, k = drawn
    subsets = [any(one < good for one in chosen) for chosen in combinations(range(total), k)]
    assert pass_at_k(total, good, k) == pytest.approx(sum(subsets) / len(subsets), abs=1e-12)


@given(st.floats(0, 1), counts(12))
def test_it_is_unbiased(p: float, drawn: tuple[int, int, int]) -> None:
    """Over all results of n draws with chance p, its mean is the chance of k draws: 1 - (1 - p)^k."""
    total, _, k = drawn
    expected = sum(
        comb(total, good) * p**good * (1 - p) ** (total - good) * pass_at_k(total, good, k) for good in range(total + 1)
    )
    assert expected == pytest.approx(1 - (1 - p) ** k, abs=1e-9)


@given(st.integers(1, 400), st.data())
def test_it_grows_with_k_and_with_the_good_and_stays_a_share(total: int, data: st.DataObject) -> None:
    good = data.draw(st.integers(0, total))
    values = [pass_at_k(total, good, k) for k in range(1, total + 1)]
    assert values[0] == pytest.approx(good / total) and values[-1] == pytest.approx(float(good > 0))
    assert all(a <= b + 1e-12 for a, b in pairwise(values)) and min(values) >= 0 and max(values) <= 1
    if good < total:
        k = data.draw(st.integers(1, total))
        assert pass_at_k(total, good, k) <= pass_at_k(total, good + 1, k)


@pytest.mark.parametrize("bad", [(3, 4, 1), (3, -1, 1), (3, 1, 0), (3, 1, 4), (0, 0, 1)])
def test_what_cannot_be_estimated_is_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no such estimate"):
        pass_at_k(*bad)


def test_tasks_with_too_few_samples_are_left_out_and_counted() -> None:
    tasks = [Samples(1, 4), Samples(0, 4), Samples(2, 2), Samples(0, 0)]
    one, *_, four = curve(tasks, 4)
    assert one.value == pytest.approx((0.25 + 0 + 1) / 3) and (one.tasks, one.left_out) == (3, 1)
    assert four.value == pytest.approx(0.5) and (four.tasks, four.left_out) == (2, 2)
    assert at_k(tasks, 5) == AtK(5, None, None, 0, 4) and at_k([], 1).value is None


@given(st.lists(st.tuples(st.integers(0, 5), st.just(5)), min_size=1, max_size=30), st.integers(1, 5))
def test_the_interval_holds_the_estimate_inside_zero_and_one(drawn: list[tuple[int, int]], k: int) -> None:
    found = at_k([Samples(*one) for one in drawn], k)
    assert found.value is not None and found.interval is not None
    low, high = found.interval
    assert 0 <= low <= found.value <= high <= 1 and low < high, "a figure of finitely many tasks is never a point"
    assert found == at_k([Samples(*one) for one in drawn], k), "the same rows give the same interval"


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for trial in range(200):
        chances = rng.beta(1, 2, 60)
        tasks = [Samples(int(rng.binomial(5, p)), 5) for p in chances]
        truth = 1 - (2 * 3 * 4) / (3 * 4 * 5)  # the mean of 1 - (1-p)^3 over Beta(1, 2): E[(1-p)^3] = 2/5
        found = at_k(tasks, 3, seed=trial)
        assert found.interval is not None
        held += found.interval[0] <= truth <= found.interval[1]
    assert 0.88 <= held / 200 <= 0.99


def test_tasks_that_all_agree_leave_a_doubt_that_shrinks_with_their_number() -> None:
    few, many = interval(np.zeros(2)), interval(np.zeros(200))
    assert few[0] == many[0] == 0 and few[1] == pytest.approx(1 - 0.05**0.5) and many[1] < 0.02
    assert interval(np.ones(2))[1] == 1 and interval(np.ones(2))[0] == pytest.approx(0.05**0.5)


def test_a_price_needs_something_bought() -> None:
    assert per_solved(6.0, 3) == 2.0 and per_solved(6.0, 0) is None
