"""What is gained: measured against every baseline, else estimated against the unfused task; never mixed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.measure.gain import BOUNDS, describe_factor, gains, mean_microseconds
from hipwright.records import Estimate, TargetResult, Timing, Versus


def estimate(target: str, microseconds: float) -> Estimate:
    return Estimate(target=target, microseconds=microseconds, bound="launch", roofline_fraction=0.2)


def timing(device: str) -> Timing:
    one = Versus(
        baseline="eager",
        speedup=1.5,
        interval=(1.4, 1.6),
        samples_ms=(1.0, 1.0, 1.0),
        baseline_ms=(1.5, 1.6, 1.5),
        pairs=3,
    )
    return Timing(device=device, architecture="sm_90", median_ms=1.0, versus={"eager": one}, bound="memory")


def test_an_estimate_is_compared_with_the_same_target_s_unfused_task() -> None:
    results = {name: TargetResult(target=name, estimate=estimate(name, 5.0)) for name in ("gfx942", "gfx950")}
    (found,) = gains(results, {"gfx942": estimate("gfx942", 20.0)})
    assert (found.target, found.kind, found.baseline) == ("gfx942", "estimate", "unfused")
    assert (found.baseline_us, found.program_us, found.factor, found.interval) == (20.0, 5.0, 4.0, None)
    assert found.bound in BOUNDS


def test_a_measurement_is_never_compared_with_an_estimate() -> None:
    result = TargetResult(target="cuda", estimate=estimate("cuda", 5.0), timing=timing("NVIDIA H100"))
    (found,) = gains({"cuda": result}, {"cuda": estimate("cuda", 500.0)})
    assert (found.kind, found.baseline, found.factor, found.interval) == ("measured", "eager", 1.5, (1.4, 1.6))
    assert (found.baseline_us, found.program_us) == (1500.0, 1000.0)
    simulated = TargetResult(target="rocm", timing=timing("gfx942 (simulated)"))
    assert [one.kind for one in gains({"rocm": simulated}, {})] == ["simulated"]


def test_without_a_time_there_is_no_gain() -> None:
    assert gains({"cpu": TargetResult(target="cpu")}, {"cpu": estimate("cpu", 3.0)}) == []
    assert mean_microseconds({}) is None
    assert mean_microseconds({"a": estimate("a", 2.0), "b": estimate("b", 8.0)}) == pytest.approx(4.0)


@given(st.floats(1e-3, 1e3))
def test_the_words_never_contradict_the_figure(factor: float) -> None:
    words = describe_factor(factor)
    assert ("faster" in words and "no" not in words) == (factor >= 1.01)
    assert words.endswith("slower") == (factor <= 0.99)
