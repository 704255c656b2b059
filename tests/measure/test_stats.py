"""The paired comparison in simulation: equals are found equal, differences are found, drift and spikes cancel."""

from __future__ import annotations

import numpy as np
import pytest

from hipwright.measure.stats import FEWEST, paired_ratio

Samples = tuple[list[float], list[float]]


def machine(pairs: int, seed: int, *, ratio: float = 1.0, alike: float = 0.0) -> Samples:
    """Candidate and base times on a machine with 4 % drift, 2 % spikes and 1 % noise (alike: of neighbours)."""
    g = np.random.default_rng(seed)
    drift = 1 + 0.04 * np.sin(np.arange(pairs) / pairs * 3 + seed)
    noise = g.normal(0, 0.01, pairs)
    for i in range(1, pairs):
        noise[i] += alike * noise[i - 1]

    def spikes() -> np.ndarray:
        return np.where(g.random(pairs) < 0.02, 1 + g.random(pairs), 1.0)

    candidate = ratio * drift * np.exp(noise) * spikes()
    base = drift * np.exp(g.normal(0, 0.01, pairs)) * spikes()
    return candidate.tolist(), base.tolist()


@pytest.mark.parametrize(("pairs", "alike"), [(16, 0.0), (50, 0.0), (50, 0.5)])
def test_equals_are_called_equal_in_at_least_184_of_200(pairs: int, alike: float) -> None:
    found = [paired_ratio(*machine(pairs, seed, alike=alike), seed=seed) for seed in range(200)]
    assert sum(r.low <= 1.0 <= r.high for r in found) >= 184


def test_the_interval_is_not_wide_without_need() -> None:
    found = [paired_ratio(*machine(50, seed)) for seed in range(40)]
    assert (
        np.median([r.high - r.low for r in found]) < 0.013
    )  # noise of 1.4 % a pair over sqrt(50) pairs: 0.8 % at best


@pytest.mark.parametrize("ratio", [0.97, 1.03])
def test_three_per_cent_are_found_with_fifty_pairs(ratio: float) -> None:
    found = [paired_ratio(*machine(50, seed, ratio=ratio)) for seed in range(40)]
    assert all(r.faster == (ratio < 1) for r in found)
    assert all(r.low <= r.value <= r.high and r.value == pytest.approx(ratio, abs=0.01) for r in found)
    assert found[0].speedup == pytest.approx(1 / found[0].value)


def test_drift_and_a_burst_of_spikes_cancel() -> None:
    base = [10.0 * (1 + 0.01 * i) for i in range(40)]
    candidate = [0.9 * time for time in base]
    candidate[7:11] = [99.0] * 4
    found = paired_ratio(candidate, base)
    assert found.value == pytest.approx(0.9) and found.faster


def test_it_is_deterministic_and_needs_no_unit() -> None:
    candidate, base = machine(20, 1)
    first = paired_ratio(candidate, base, seed=4)
    assert paired_ratio(candidate, base, seed=4) == first
    scaled = paired_ratio([1000 * t for t in candidate], [1000 * t for t in base], seed=4)
    assert scaled.low == pytest.approx(first.low) and scaled.high == pytest.approx(first.high)


def test_identical_samples_give_a_point() -> None:
    found = paired_ratio([2.0] * 10, [2.0] * 10)
    assert (found.low, found.value, found.high, found.pairs) == (1.0, 1.0, 1.0, 10) and not found.faster


@pytest.mark.parametrize(
    ("candidate", "base", "why"),
    [
        ([1.0] * 9, [1.0] * 8, "cannot be paired"),
        ([1.0] * (FEWEST - 1), [1.0] * (FEWEST - 1), "too few"),
        ([0.0] * 8, [1.0] * 8, "positive"),
        ([float("nan")] * 8, [1.0] * 8, "positive"),
    ],
)
def test_samples_that_cannot_be_compared(candidate: list[float], base: list[float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        paired_ratio(candidate, base)
