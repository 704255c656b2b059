"""Regions are taken out of a model: those that fail the gate, and those that bring nothing end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hipwright.api.whole import place
from hipwright.api.whole.describe import times_line
from hipwright.api.whole.gate import OutputCheck
from hipwright.api.whole.handle import Clock
from hipwright.api.whole.outcome import ModelOutcome, RegionOutcome
from hipwright.api.whole.plan import Call, Region
from hipwright.api.whole.profile import ModelProfile
from hipwright.events import silent

WRONG = {1}


def outcome(*factors: float) -> ModelOutcome:
    """A model of equal regions with these speedups, all kept."""
    calls = [Call(n, f"part{n}", "Linear", -1, 1.0, 0.1, 2, str(n)) for n in range(len(factors))]
    regions = tuple(Region(str(n), (call,)) for n, call in enumerate(calls))
    profile = ModelProfile(
        clock=Clock("device", "a GPU", ""),
        told={"class": "Net", "parameters": 1, "inputs": [], "metric": False},
        seconds=float(len(factors)),
        operators=len(factors),
        regions=regions,
        stays=(),
    )
    outcomes = [
        RegionOutcome(n, region, kept=True, factor=factor, basis="measured")
        for n, (region, factor) in enumerate(zip(regions, factors, strict=True))
    ]
    return ModelOutcome(profile, outcomes, gate={"truth": "float64"})


class Judged(place.Trial):
    """A trial in which the regions of `wrong` make the outputs wrong, alone or, of `pairs`, together."""

    def __init__(self, *, wrong: set[int] = WRONG, together: int = 99, metric: float | None = None) -> None:
        none: Any = None
        super().__init__(none, none, none, {0: None}, metric, 1e-3)
        self.wrong, self.together = wrong, together

    def run(self, regions: Sequence[RegionOutcome]) -> tuple[list[OutputCheck], dict[str, Any]]:
        bad = any(one.number in self.wrong for one in regions) or len(regions) >= self.together
        counts = {str(one.number): {"calls": 1, "fallbacks": {}} for one in regions}
        return [OutputCheck(0, 1.0 if bad else 1e-6, 1e-6, 3e-6, "the error is too large" if bad else "")], counts

    def metric_with(self, regions: Sequence[RegionOutcome]) -> float | None:
        return None if self.metric is None else self.metric - (0.1 if any(o.number == 0 for o in regions) else 0.0)


def test_a_region_that_is_wrong_alone_is_taken_out_with_the_reason() -> None:
    found = outcome(2.0, 2.0, 2.0)
    place.gate(found, Judged(), silent)
    assert [one.kept for one in found.regions] == [True, False, True]
    assert "accuracy gate: output 0" in found.regions[1].why and found.gate["passed"] and found.passed
    assert found.speedup == pytest.approx(3 / 2)


def test_regions_that_are_wrong_together_leave_from_the_last() -> None:
    found = outcome(2.0, 2.0, 2.0)
    place.gate(found, Judged(wrong=set(), together=2), silent)
    assert [one.kept for one in found.regions] == [True, False, False]


def test_a_failure_says_what_would_have_passed() -> None:
    found = outcome(2.0, 2.0)
    place.gate(found, Judged(), silent)
    assert found.regions[1].why == "the accuracy gate: output 0: the error is too large (1, at most 3e-06)"
    found = outcome(2.0)
    place.gate(found, Judged(wrong=set(), metric=0.9), silent)
    said = "the accuracy gate: the metric becomes 0.8 from 0.9, and 0.001 of it may change"
    assert found.regions[0].why == said


def test_a_metric_that_changes_takes_out_its_region() -> None:
    found = outcome(2.0, 2.0)
    place.gate(found, Judged(wrong=set(), metric=0.9), silent)
    assert [one.kept for one in found.regions] == [False, True]
    assert found.metric == {"eager": 0.9, "programs": 0.9, "passed": True}


def test_nothing_is_left_where_every_region_is_wrong() -> None:
    found = outcome(2.0)
    place.gate(found, Judged(wrong={0}), silent)
    assert not found.kept and not found.passed and found.speedup is None


class Timed:
    """A host whose forward takes 10 ms, less what each chosen region saves."""

    def __init__(self, saves: dict[int, float], compiled: float = 8.0) -> None:
        self.saves, self.compiled, self.chosen = saves, compiled, list[int]()

    def ask(self, method: str, header: dict[str, Any]) -> tuple[dict[str, Any], None]:
        if method == "choose":
            self.chosen = header["regions"]
            return {}, None
        if header["side"] == "graph":
            return {"missing": "RuntimeError: not here"}, None
        saved = sum(self.saves[n] for n in self.chosen)
        plain = {"calls": 4, "replays": 3, "fallbacks": {}, "launched": {"its kind is new": 1}}
        own = {"calls": 0, "replays": 0, "fallbacks": {"autocast is on": 5}, "launched": {}}
        counts = {str(n): own if self.saves[n] == 0.0 else plain for n in self.chosen}
        return {"ms": self.compiled if header["side"] == "compile" else 10.0 - saved, "counts": counts}, None


def timed(saves: dict[int, float]) -> ModelOutcome:
    found, none = outcome(*[1.5] * len(saves)), None
    host: Any = Timed(saves)
    plain: Any = Timed(saves)
    programs: Any = none
    place.measure(found, place.Trial(plain, host, programs, {}, None, 1e-3), silent)
    return found


def test_a_region_that_brings_nothing_is_taken_out() -> None:
    found = timed({0: 5.0, 1: 0.0, 2: -1.0})
    assert [one.kept for one in found.regions] == [True, False, False]
    assert "no slower without it" in found.regions[1].why
    assert found.times["speedup"] == pytest.approx({"eager": 2.0, "compile": 1.6})
    assert found.times["programs"] == pytest.approx(5.0)
    assert found.regions[1].why.endswith("(1.000x; 0 of 5 calls replay a graph of the GPU; others: autocast is on)")
    how = found.times["how"]
    assert how["programs"] == "3 of 4 calls replay a graph of the GPU; others: its kind is new"
    assert "default mode" in how["compile"] and set(how) == {"eager", "compile", "programs"}
    assert "5 ms a call (3 of 4 calls replay a graph of the GPU" in times_line(found)
    assert set(found.times["missing"]) == {"eager captured", "programs captured"}


def test_shares_before_and_after_are_amdahls() -> None:
    found = outcome(2.0, 1.0, 1.0)
    before, after = found.shares(found.regions[0])
    assert before == pytest.approx(1 / 3) and after == pytest.approx(0.5 / 2.5)


def test_a_hostile_name_of_a_class_stays_in_the_folder() -> None:
    call = Call(0, "part", "../../etc/passwd\0 <b>", -1, 1.0, 0.1, 2, "")
    assert RegionOutcome(3, Region("", (call,))).folder == "03__etc_passwd_b_"
