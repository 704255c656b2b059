"""Comparison of programs: estimates by the noise band, measurements by their intervals."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.records import Evaluation, TargetResult, Timing, Versus
from hipwright.search.fitness import MODEL_NOISE, faster, gain, score


def estimated(microseconds: float | None, **more: Any) -> Evaluation:
    return Evaluation(
        task="t", program="p", **{"status": "pass", "score": microseconds, "score_kind": "estimate", **more}
    )


def versus(baseline: str, speedup: float, low: float, high: float) -> Versus:
    return Versus(
        baseline=baseline, speedup=speedup, interval=(low, high), samples_ms=(1.0,), baseline_ms=(speedup,), pairs=1
    )


def measured(
    speedup: float, low: float, high: float, *, baseline: str = "eager", target: str = "rocm", **more: Any
) -> Evaluation:
    timing = Timing(
        device="d", architecture="a", median_ms=1.0, versus={baseline: versus(baseline, speedup, low, high)}
    )
    return estimated(1.0, score_kind="measured", targets={target: TargetResult(target=target, timing=timing)}, **more)


def test_estimates_within_the_band_are_equal() -> None:
    assert faster(estimated(97.9), estimated(100.0))
    assert not faster(estimated(100 * (1 - MODEL_NOISE)), estimated(100.0))
    assert not faster(estimated(100.0), estimated(97.9))
    assert faster(estimated(99.0), estimated(100.0), margin=0.0)


def test_measurements_need_disjoint_intervals() -> None:
    assert faster(measured(2.0, 1.9, 2.1), measured(1.5, 1.4, 1.6))
    assert not faster(measured(2.0, 1.5, 2.5), measured(1.5, 1.4, 1.6))  # overlap: a better point is not enough
    assert not faster(measured(1.5, 1.4, 1.6), measured(2.0, 1.9, 2.1))
    found = score(measured(2.0, 1.6, 2.5))
    assert found is not None and (found.value, found.low, found.high) == (0.5, 0.4, 0.625)


def test_a_measurement_is_believed_over_an_estimate() -> None:
    assert faster(measured(1.0, 0.9, 1.1), estimated(1.0))
    assert not faster(estimated(1.0), measured(1.0, 0.9, 1.1))
    assert gain(estimated(1.0), measured(1.0, 0.9, 1.1)) == 0.0


@pytest.mark.parametrize("status", ["timeout", "wrong_value", "unscorable", "launch_error"])
def test_what_failed_has_no_score_whatever_number_it_carries(status: Any) -> None:
    assert score(estimated(0.001, status=status)) is None
    assert not faster(estimated(0.001, status=status), estimated(100.0))
    assert faster(estimated(100.0), estimated(0.001, status=status))


def test_a_pass_without_a_figure_beats_a_failure_only() -> None:
    bare = estimated(None, score_kind="none")
    assert faster(bare, estimated(1.0, status="timeout"))
    assert not faster(bare, estimated(1.0)) and not faster(bare, bare)
    assert faster(estimated(1.0), bare)


def test_gain_is_the_share_of_time_saved() -> None:
    assert gain(estimated(75.0), estimated(100.0)) == 0.25


def test_a_measurement_without_a_sound_interval_is_no_score() -> None:
    assert score(measured(1.0, 0.0, 0.0)) is None
    assert score(estimated(1.0, score_kind="measured")) is None


def test_eager_ranks_whatever_else_was_timed() -> None:
    both = {"compile": versus("compile", 0.5, 0.4, 0.6), "eager": versus("eager", 4.0, 3.9, 4.1)}
    timing = Timing(device="d", architecture="a", median_ms=1.0, versus=both)
    found = score(estimated(1.0, score_kind="measured", targets={"cuda": TargetResult(target="cuda", timing=timing)}))
    assert found is not None and (found.value, found.basis) == (0.25, "cuda against eager")


def test_an_amd_gpu_ranks_before_an_nvidia_one() -> None:
    fast, slow = measured(9.0, 8.9, 9.1, target="cuda"), measured(2.0, 1.9, 2.1)
    found = score(estimated(1.0, score_kind="measured", targets={**fast.targets, **slow.targets}))
    assert found is not None and found.value == 0.5


@pytest.mark.parametrize("other", [{"baseline": "compile"}, {"target": "cuda"}])
def test_other_baselines_and_other_targets_are_not_compared(other: dict[str, Any]) -> None:
    quick, slow = measured(9.0, 8.9, 9.1, **other), measured(2.0, 1.9, 2.1)
    assert not faster(quick, slow) and not faster(slow, quick) and gain(quick, slow) == 0.0
