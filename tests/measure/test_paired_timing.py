"""Every rule of the measurement, on a fake GPU whose true times are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_sides import FakeSide, Machine

from hipwright.measure.paired_timing import FULL, PLACEMENT, SCORE, TimingResult, TimingSettings, remeasure, time_pairs
from hipwright.measure.roofline import Floor, rotation
from hipwright.measure.rounds import CANDIDATE
from hipwright.records import Timing, Verdict

QUICK = replace(FULL, budget_ms=200.0, resamples=500)


def compare(
    call_ms: float = 0.05,
    base_ms: float = 0.05,
    *,
    seed: int = 1,
    settings: TimingSettings = QUICK,
    machine: Machine | None = None,
    baselines: int = 1,
    how: dict[str, Any] | None = None,
    **lies: Any,
) -> TimingResult:
    """A candidate (with `lies`) against baselines on a machine with a little noise."""
    here = machine or Machine(seed)
    noise = {"noise": 0.003, "latency_ms": 0.08}
    names = ("eager", "compile")[:baselines]
    sides = [FakeSide(here, name, base_ms * (1 + place), **noise) for place, name in enumerate(names)]
    candidate = FakeSide(here, "candidate", call_ms, **{**noise, **lies})
    return time_pairs(candidate, sides, settings=settings, seed=seed, **(how or {}))


def timing(result: TimingResult) -> Timing:
    assert result.timing is not None
    assert result.verdict is None, result.verdict
    return result.timing


def verdict(result: TimingResult) -> Verdict:
    assert result.verdict is not None
    return result.verdict


# ---------------------------------------------------------------- what honest sides get


def equals(seed: int, settings: TimingSettings, alike: float) -> Timing:
    """A kernel against itself in another process: 4 % drift, 2 % spikes, 1 % noise, 0.3 % placement bias."""
    machine, g = Machine(seed, drift=0.04), np.random.default_rng(10**6 + seed)
    noise = {"noise": 0.01, "alike": alike, "spikes": 0.02}
    sides = [FakeSide(machine, name, 0.05, bias=g.uniform(-0.003, 0.003), **noise) for name in ("a", "b")]
    return timing(time_pairs(sides[0], sides[1:], settings=settings, seed=seed))


@pytest.mark.parametrize(
    ("settings", "alike", "most", "runs"),
    [
        (replace(FULL, latency_rounds=0), 0.0, 0.01, 100),
        pytest.param(replace(FULL, latency_rounds=0), 0.4, 0.01, 100, marks=pytest.mark.slow),
        (SCORE, 0.4, 0.03, 200),
    ],
    ids=["full", "full-alike", "score"],
)
def test_equals_are_called_equal_though_sampling_stops_when_it_likes(
    settings: TimingSettings, alike: float, most: float, runs: int
) -> None:
    found = [equals(seed, settings, alike).versus["b"] for seed in range(runs)]
    assert sum(one.interval[0] <= 1.0 <= one.interval[1] for one in found) >= 0.92 * runs
    assert max(abs(one.speedup - 1) for one in found) < most
    assert len({one.pairs for one in found}) > 2, "the length was never adapted"


def test_without_the_placement_term_equals_would_be_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The term is needed: where processes differ by more than it assumes, coverage breaks."""
    monkeypatch.setattr("hipwright.measure.paired_timing.PLACEMENT", 0.0)

    def inside(seed: int) -> bool:
        machine, g = Machine(seed), np.random.default_rng(seed)
        sides = [FakeSide(machine, name, 0.05, bias=g.normal(0, PLACEMENT), noise=0.001) for name in ("a", "b")]
        low, high = timing(time_pairs(sides[0], sides[1:], settings=SCORE, seed=seed)).versus["b"].interval
        return low <= 1.0 <= high

    assert sum(map(inside, range(60))) < 40


@pytest.mark.parametrize("ratio", [0.5, 0.97, 1.03, 1.15])
def test_a_difference_is_found_under_drift_and_throttling(ratio: float) -> None:
    machine = Machine(3, drift=0.04, throttle=0.4)
    found = timing(compare(0.05 * ratio, 0.05, machine=machine, baselines=2, settings=FULL, spikes=0.02))
    low, high = found.versus["eager"].interval
    assert low <= 1 / ratio <= high and not low <= 1.0 <= high
    assert found.versus["compile"].speedup == pytest.approx(2 / ratio, rel=0.02)
    assert found.versus["compile"].samples_ms == found.versus["eager"].samples_ms, "the candidate's samples are shared"
    one = found.versus["eager"]
    assert len(one.samples_ms) == len(one.baseline_ms) == one.pairs


def test_the_record_says_what_was_measured() -> None:
    floor = Floor(roofline_ms=0.02, lowest_ms=0.015, bound="memory", bytes=10, lowest_bytes=8)
    found = timing(compare(0.025, 0.05, how={"floor": floor, "device": "NVIDIA H200", "architecture": "sm_90"}))
    assert (found.device, found.architecture, found.policy, found.bound) == ("NVIDIA H200", "sm_90", "graph", "memory")
    assert found.median_ms == pytest.approx(0.025, rel=0.01)
    assert found.roofline_fraction == pytest.approx(0.8, rel=0.01) and found.floor_ms == 0.02
    assert found.clock_gap is not None and abs(found.clock_gap) < 0.01
    assert found.latency_ms == pytest.approx(0.08, rel=0.1)
    assert found.versus["eager"].latency_speedup == pytest.approx(1, rel=0.1)
    assert found.versus["eager"].stopped == "precise" and found.seconds > 0


@pytest.mark.parametrize("call_ms", [0.002, 0.01, 0.3, 40.0])
def test_blocks_of_both_sides_last_as_long_whatever_a_call_takes(call_ms: float) -> None:
    machine = Machine(0)
    found = timing(compare(call_ms, 2.5 * call_ms, machine=machine, settings=FULL))
    assert found.versus["eager"].speedup == pytest.approx(2.5, rel=0.01)
    if call_ms < 1:
        last = dict(re.fullmatch(r"([a-z]+)(\d+)", entry).groups() for entry in machine.log[-40:] if entry)  # type: ignore[union-attr]
        assert int(last["candidate"]) * call_ms == pytest.approx(1.5, rel=0.25)
        assert int(last["eager"]) * 2.5 * call_ms == pytest.approx(1.5, rel=0.5)


def test_one_side_that_cannot_be_captured_puts_all_on_the_stream() -> None:
    found = timing(compare(can_capture=False))
    assert found.policy == "stream"
    assert any("candidate is not captured" in note and "synchronises" in note for note in found.notes)


def test_precise_machines_need_few_pairs_and_noisy_ones_use_the_budget() -> None:
    calm, wild = timing(compare(noise=0.0005)), timing(compare(noise=0.05, settings=FULL))
    assert calm.versus["eager"].pairs == 2 * FULL.quads and calm.versus["eager"].stopped == "precise"
    assert wild.versus["eager"].pairs > 100 and wild.versus["eager"].stopped == "budget"


def test_time_spent_stays_near_the_budget() -> None:
    machine = Machine(2)
    compare(machine=machine, noise=0.2, settings=SCORE)
    assert machine.now_ms < 3 * SCORE.budget_ms
    slow = Machine(2)
    assert timing(compare(90.0, 100.0, machine=slow, settings=FULL)).versus["eager"].pairs == 8
    assert slow.now_ms < 3500


def test_a_baseline_that_stays_warm_is_warmed_once_for_each_policy() -> None:
    machine, memory = Machine(2), {}
    eager, used, found = FakeSide(machine, "eager", 0.05, noise=0.003), [], []
    for n, can_capture in enumerate((True, True, True, False)):
        before = sum(entry.startswith("eager") for entry in machine.log)
        candidate = FakeSide(machine, "candidate", 0.04, noise=0.003, can_capture=can_capture)
        done = timing(time_pairs(candidate, [eager], settings=SCORE, seed=n, memory=memory))
        found.append(done.versus["eager"])
        used.append(sum(entry.startswith("eager") for entry in machine.log) - before - found[-1].pairs)
    assert max(used[1:3]) < min(used[0], used[3]) - 1
    assert all(one.speedup == pytest.approx(1.25, rel=0.02) for one in found)
    assert set(memory) == {(name, policy) for name in ("eager", CANDIDATE) for policy in ("graph", "stream")}


# ---------------------------------------------------------------- losers


def test_a_clear_loser_is_dropped_early() -> None:
    machine = Machine(4)
    lost = timing(compare(0.15, 0.05, machine=machine, settings=FULL))
    assert lost.versus["eager"].stopped == "loser" and lost.versus["eager"].pairs == 8
    assert lost.latency_ms is None
    low, high = lost.versus["eager"].interval
    assert low <= 1 / 3 <= high


def test_hardly_anything_that_is_not_a_loser_is_dropped() -> None:
    """At the threshold itself a drop has probability 2**-8 for independent pairs; just above it, almost none."""

    def dropped(seed: int, speedup: float) -> bool:
        machine = Machine(seed, drift=0.04)
        lie = {"noise": 0.01, "alike": 0.4, "spikes": 0.02}
        found = timing(compare(0.05 / speedup, 0.05, seed=seed, machine=machine, settings=SCORE, **lie))
        return found.versus["eager"].stopped == "loser"

    assert sum(dropped(seed, FULL.drop_below) for seed in range(200)) <= 6
    assert not any(dropped(seed, 1.03 * FULL.drop_below) for seed in range(200))
    assert all(dropped(seed, 0.9 * FULL.drop_below) for seed in range(40))


# ---------------------------------------------------------------- liars


@pytest.mark.parametrize("settings", [QUICK, SCORE], ids=["full", "score"])
@pytest.mark.parametrize(
    ("lie", "share", "rule"),
    [
        ("stream", 0.5, "device and host"),
        ("stream", 0.06, "device and host"),
        ("empties", 0.3, "device and host"),
        ("clock", 0.5, "host and parent"),
        ("clock", 0.3, "host and parent"),
        ("early", 0.4, "host and parent"),
        ("both", 0.5, "neighbours"),
        ("both", 0.35, "neighbours"),
        ("zero", 0.0, "sound"),
    ],
)
def test_a_lying_candidate_is_untrusted(settings: TimingSettings, lie: Any, share: float, rule: str) -> None:
    found = verdict(compare(settings=settings, how={"form": "modelnew"}, lie=lie, share=share))
    assert (found.status, found.fault, found.stage) == ("untrusted", "candidate", "measure")
    assert found.evidence["rule"] == rule or lie == "early", found  # its unfinished work slows the neighbours too
    assert found.evidence["side"] == "candidate" and len(found.evidence) > 2


def test_sides_that_run_whole_tours_are_compared_by_the_calls_they_ran() -> None:
    class Tour(FakeSide):
        def block(self, calls: int) -> Any:
            return super().block(-(-calls // 32) * 32)

    for call_ms in (0.003, 0.05):
        machine = Machine(5)
        sides = Tour(machine, "candidate", call_ms, noise=0.003), Tour(machine, "eager", 1.5 * call_ms, noise=0.003)
        found = timing(time_pairs(sides[0], sides[1:], settings=SCORE, seed=1))
        assert found.versus["eager"].speedup == pytest.approx(1.5, rel=0.01)
        assert found.median_ms == pytest.approx(call_ms, rel=0.02)


def test_in_the_program_lane_a_broken_clock_is_the_devices_fault() -> None:
    assert verdict(compare(lie="stream", share=0.5)).fault == "device"


def test_a_baseline_with_broken_clocks_is_never_the_candidates_fault() -> None:
    machine = Machine(1)
    base = FakeSide(machine, "eager", 0.05, lie="stream", share=0.3)
    found = verdict(time_pairs(FakeSide(machine, "candidate", 0.05), [base], settings=QUICK, form="modelnew", seed=1))
    assert (found.status, found.fault, found.evidence["side"]) == ("untrusted", "device", "eager")


def test_a_doubt_that_does_not_come_back_is_forgotten_and_noted() -> None:
    machine = Machine(1)

    class Once(FakeSide):
        warmed = 0

        def prepare(self, iterations_hint: int) -> Any:
            self.lie, self.share = "stream", 0.5
            return super().prepare(iterations_hint)

        def block(self, calls: int) -> Any:
            self.warmed += calls == 0
            if self.warmed > QUICK.empties + 1:  # the second measurement calibrates again
                self.lie = ""
            return super().block(calls)

    candidate = Once(machine, "candidate", 0.05)
    found = timing(time_pairs(candidate, [FakeSide(machine, "eager", 0.05)], settings=QUICK, seed=1))
    assert any("measured twice" in note and "untrusted" in note for note in found.notes)


@pytest.mark.parametrize("settings", [QUICK, SCORE], ids=["full", "score"])
def test_long_messages_and_busy_hosts_are_no_lies(settings: TimingSettings) -> None:
    """Compilers keep the host busy while the GPU is timed: messages are late by a hundred microseconds."""
    doubts = 0
    for seed in range(60):
        machine = Machine(seed, drift=0.04)
        sides = [FakeSide(machine, name, 0.05, noise=0.003, spikes=0.05, busy_ms=0.1) for name in ("c", "eager")]
        found = time_pairs(
            sides[0], sides[1:], settings=replace(settings, latency_rounds=0), seed=seed, form="modelnew"
        )
        doubts += found.verdict is not None
    assert doubts == 0


def test_nothing_tells_which_blocks_count() -> None:
    """Warm-up uses the same call, for a secret number of blocks in a secret order."""

    def shape(seed: int) -> list[str]:
        machine = Machine(0)
        compare(machine=machine, seed=seed, settings=SCORE)
        return machine.log

    logs = [shape(seed) for seed in range(6)]
    firsts = {tuple(entry.rstrip("0123456789") for entry in log[10:70]) for log in logs}
    assert len(firsts) == len(logs)


# ---------------------------------------------------------------- impossible


FLOOR = Floor(roofline_ms=0.05, lowest_ms=0.04, bound="memory", bytes=1000, lowest_bytes=900)


def test_faster_than_the_work_takes_is_impossible_and_measured_twice() -> None:
    machine = Machine(1)
    found = verdict(compare(0.03, 0.1, machine=machine, how={"floor": FLOOR}))
    assert (found.status, found.fault, found.stage) == ("impossible", "candidate", "measure")
    assert found.evidence["lowest_ms"] == 0.04 and found.evidence["median_ms"] == pytest.approx(0.03, rel=0.01)
    assert machine.log.count("") >= 2 * 2 * QUICK.empties, "calibrated and measured again"
    assert timing(compare(0.041, 0.1, how={"floor": FLOOR})).roofline_fraction == pytest.approx(1.22, rel=0.01)


@pytest.mark.parametrize("rotated", [True, False])
def test_a_cache_that_persists_is_defeated_by_rotation(rotated: bool) -> None:
    """Inputs of a third of the cache: if always the same, they are read from the cache, three times as fast."""
    cache, each = 300, 100
    slots = rotation(each, cache, 10**9) if rotated else 1
    floor = Floor(roofline_ms=0.05, lowest_ms=0.03, bound="memory", bytes=100, lowest_bytes=60)
    found = compare(0.05, 0.05, how={"floor": floor}, cache_bytes=cache, slot_bytes=each, slots=slots)
    if rotated:
        assert timing(found).versus["eager"].speedup == pytest.approx(1, abs=0.01)
    else:
        assert verdict(found).status == "impossible"


# ---------------------------------------------------------------- winners


@pytest.mark.parametrize(("again_ms", "disagree"), [(0.025, False), (0.04, True)])
def test_a_winner_is_measured_again_in_fresh_processes(again_ms: float, disagree: bool) -> None:
    first, opened = compare(0.025, 0.05), []

    @contextmanager
    def fresh() -> Iterator[tuple[FakeSide, list[FakeSide]]]:
        machine = Machine(9)
        opened.append("open")
        yield FakeSide(machine, "candidate", again_ms, noise=0.002), [FakeSide(machine, "eager", 0.05, noise=0.002)]
        opened.append("closed")

    final = timing(remeasure(first, fresh, settings=QUICK))
    assert opened == ["open", "closed"]
    assert final.versus["eager"].speedup == pytest.approx(0.05 / again_ms, rel=0.01), "the second figure is the final"
    notes = " ".join(final.notes)
    assert "fresh process" in notes and ("disagree" in notes) == disagree
    if disagree:
        assert "first 2.0" in notes and "1.2" in notes


def test_a_baseline_is_needed() -> None:
    with pytest.raises(ValueError, match="at least one baseline"):
        time_pairs(FakeSide(Machine(), "candidate", 1.0), [])
