"""Identities of advantages and returns."""

from __future__ import annotations

from statistics import fmean

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.train.records import AnswerOutcome
from hipwright.train.rl.advantage import advantages, has_no_variance, is_own_work, returns

VALUES = st.lists(st.floats(-3, 3), min_size=2, max_size=9)
HOLED = st.lists(st.none() | st.floats(-3, 3), min_size=1, max_size=9)


@given(VALUES)
def test_leave_one_out_is_the_mean_of_the_others(values: list[float]) -> None:
    expected = [v - fmean(values[:i] + values[i + 1 :]) for i, v in enumerate(values)]
    assert advantages(values, "loo") == pytest.approx(expected, abs=1e-9)


@given(VALUES)
def test_leave_one_out_is_the_scaled_group_mean(values: list[float]) -> None:
    n = len(values)
    scaled = [a * n / (n - 1) for a in advantages(values, "grpo")]
    assert advantages(values, "loo") == pytest.approx(scaled, abs=1e-9)


@given(VALUES, st.sampled_from(["loo", "grpo", "grpo_std"]), st.floats(-2, 2))
def test_advantages_sum_to_zero_and_ignore_an_offset(values: list[float], baseline, offset: float) -> None:
    found = advantages(values, baseline)
    assert sum(found) == pytest.approx(0, abs=1e-6 if baseline != "grpo_std" else 1e-4)
    if not has_no_variance(values):
        moved = advantages([v + offset for v in values], baseline)
        assert moved == pytest.approx(found, rel=1e-4, abs=1e-4)


@given(VALUES.filter(lambda v: max(v) - min(v) > 0.1), st.floats(0.5, 4))
def test_division_by_the_deviation_ignores_scale(values: list[float], scale: float) -> None:
    assert advantages([v * scale for v in values], "grpo_std") == pytest.approx(
        advantages(values, "grpo_std"), rel=1e-3
    )


@given(HOLED, st.sampled_from(["loo", "grpo", "grpo_std"]))
def test_an_unscorable_answer_changes_nothing_for_the_others(values, baseline) -> None:
    known = [v for v in values if v is not None]
    found = advantages(values, baseline)
    assert [a is None for a in found] == [v is None or len(known) < 2 for v in values]
    if len(known) > 1:
        assert [a for a in found if a is not None] == advantages(known, baseline)


def test_groups_without_variance() -> None:
    assert (
        has_no_variance([0.3, 0.3, None])
        and not has_no_variance([0.3])
        and not has_no_variance([None])
        and not has_no_variance([0, 1])
    )
    assert advantages([0.5, 0.5], "grpo_std") == [0, 0]


def test_returns() -> None:
    assert returns([0.7], 0.4) == [0.7]
    assert returns([0.0, 0.5], 0.4) == pytest.approx([0.2, 0.5])
    assert returns([0.0, 0.0, 1.0], 0.4) == pytest.approx([0.16, 0.4, 1.0])
    assert returns([0.5, 0.2], 0.4) == [0.5, 0.2]
    assert returns([0.1, None], 0.4) == [0.1, None]
    assert returns([None, 1.0], 0.4) == [None, 1.0]
    assert returns([None], 0.4) == [None] and returns([], 0.4) == []


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=4), st.floats(0, 0.99))
def test_a_return_lies_between_its_own_reward_and_the_best(rewards: list[float], discount: float) -> None:
    for own, value in zip(rewards, returns(rewards, discount), strict=True):
        assert own - 1e-12 <= value <= max(own, rewards[-1]) + 1e-12


def test_own_work_is_the_profiled_share_else_the_coverage() -> None:
    right = AnswerOutcome(status="pass", compiled=True, correct=True, coverage=0.2)
    assert not is_own_work(right, 0.3) and is_own_work(right, 0.2) and is_own_work(right, 0.0)
    profiled = msgspec.structs.replace(right, own_time=0.9)
    assert is_own_work(profiled, 0.3)
    assert is_own_work(AnswerOutcome(status="wrong_value", compiled=True), 0.9), "wrong answers are not rejected"
