"""A/A over time: a GPU that suddenly takes longer for the same thing is noticed, its usual scatter is not."""

from __future__ import annotations

import pytest

from hipwright.measure.drift import KEPT, SHORT_MS, TASKS, BaselineDrift


def test_the_usual_scatter_is_allowed_and_a_slow_gpu_is_not() -> None:
    drift = BaselineDrift()
    assert [drift.off("gelu", ms) for ms in (1.0, 1.02, 0.97, 1.05)] == [""] * 4
    assert "takes 1.4 ms, and took 1.01 ms" in drift.off("gelu", 1.4)
    assert drift.off("softmax", 9.0) == ""


def test_one_wrong_first_median_does_not_last() -> None:
    drift = BaselineDrift()
    assert drift.off("gelu", 1.3) == ""
    found = [bool(drift.off("gelu", 1.0)) for _ in range(KEPT)]
    assert found[0] and not any(found[1:])


@pytest.mark.parametrize("ms", [None, SHORT_MS / 2])
def test_what_was_not_timed_or_is_too_short_says_nothing(ms: float | None) -> None:
    drift = BaselineDrift()
    assert drift.off("gelu", 1.0) == "" and drift.off("gelu", ms) == ""


def test_few_tasks_are_remembered() -> None:
    drift = BaselineDrift()
    for number in range(TASKS + 1):
        drift.off(f"{number}", 1.0)
    assert drift.off("0", 5.0) == "" and drift.off(f"{TASKS}", 5.0) != ""
