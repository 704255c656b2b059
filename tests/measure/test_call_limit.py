"""The one limit of a profiled call: each rule of docs/profile.md, on the longest launch."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.agents.counters import RunCounters, counted_of
from hipwright.errors import ToolchainError
from hipwright.measure.profiling.limit import call_limit
from hipwright.measure.profiling.profile import Profile
from hipwright.measure.profiling.profiler import ProfileReport
from hipwright.records import Evaluation, Program
from hipwright.search.moves import LIMITS, MOVES
from hipwright.targets import CUDA

FULL: dict[str, Any] = {"grid": (4000, 1, 1), "block": (256, 1, 1), "units": 132, "duration_us": 50.0, "rounds": 8.0}


def profile(**figures: Any) -> Profile:
    return Profile(kernel="k", target=CUDA.name, **{**FULL, **figures})


@pytest.mark.parametrize(
    ("limit", "figures"),
    [
        ("memory", {"dram_throughput_pct": 84.0, "occupancy_pct": 20.0}),
        ("memory", {"cache_throughput_pct": 80.0, "valu_pct": 30.0}),
        ("issue", {"valu_pct": 77.0, "dram_throughput_pct": 20.0}),
        ("issue", {"matrix_pct": 91.0}),
        ("lds", {"lds_conflict_pct": 55.0, "lds_bank_conflicts": 1e6, "valu_pct": 30.0}),
        ("tail", {"grid": (40, 1, 1), "valu_pct": 90.0}),
        ("tail", {"rounds": 1.2, "valu_pct": 30.0, "occupancy_pct": 70.0}),
        ("tail", {"rounds": 0.5, "valu_pct": 30.0, "occupancy_pct": 25.0, "occupancy_limit_pct": 100.0}),
        ("occupancy", {"occupancy_limit_pct": 25.0, "valu_pct": 30.0, "occupancy_pct": 24.0}),
        ("latency", {"valu_pct": 20.0, "occupancy_pct": 80.0, "dram_throughput_pct": 30.0}),
        ("", {}),
    ],
)
def test_each_rule(limit: str, figures: dict[str, Any]) -> None:
    found = call_limit([profile(**figures)])
    assert found is not None and found.name == limit and found.text
    assert limit in ("", *LIMITS)


def test_a_simulated_record_without_latency_is_not_called_busy_where_few_waves_run() -> None:
    busy = {"valu_pct": 100.0, "rounds": 0.3, "occupancy_pct": 8.0, "occupancy_limit_pct": 100.0}
    simulated = call_limit([profile(basis="ESTIMATE (SIMULATED)", **busy)])
    counted = call_limit([profile(**busy)])
    assert simulated is not None and counted is not None
    assert (simulated.name, counted.name) == ("tail", "issue")


def test_the_longest_launch_decides() -> None:
    short = profile(valu_pct=90.0, duration_us=5.0)
    long = profile(dram_throughput_pct=90.0, duration_us=15.0, number=1)
    found = call_limit([short, long])
    assert found is not None and found.name == "memory" and found.share == pytest.approx(0.75)
    assert found.figures["duration_us"] == 15.0
    assert call_limit([]) is None


def report(*profiles: Profile) -> ProfileReport:
    return ProfileReport(target=CUDA.name, profiles=profiles, tool="ncu", contained=True)


def test_a_profile_becomes_a_priced_record_with_the_moves_as_advice() -> None:
    made = counted_of(report(profile(dram_throughput_pct=90.0)), "ncu", 4.5)
    assert (made.limit, made.kernel, made.cost, made.seconds) == ("memory", "k", 1, 4.5)
    assert all(move.name in made.advice for move in MOVES["memory"])
    library = counted_of(report(profile(own=False, valu_pct=90.0)), "ncu", 1.0)
    assert library.limit == "" and "no kernel of its own" in library.text


def test_a_profiler_that_fails_leaves_the_static_record_and_says_why() -> None:
    def denied(program: Program) -> ProfileReport:
        raise ToolchainError("counters denied")

    evaluation = Evaluation(task="t", program="p", status="pass", score=1.0, score_kind="estimate")
    made = RunCounters("ncu", denied).profile(Program(text="x"), evaluation)
    assert made.source == "static" and not made.profiled and made.error == "counters denied" and made.cost == 1
    assert RunCounters("static").price == 0
