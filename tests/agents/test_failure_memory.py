"""Failure memory: blame on choices and pairs, its decay, and machine faults."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.agents.failure_memory import HALF_LIFE, FailureMemory
from hipwright.archive import Proposed
from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import SearchView, Trial

GOOD = {"BLOCK": 64, "vector": 1, "fuse": False}


def trial(number: int, choices: dict[str, Any], status: Any = "pass", score: float = 10.0, **more: Any) -> Trial:
    best, parents = more.pop("best", False), more.pop("parents", ())
    passed = status == "pass"
    evaluation = Evaluation(
        task="t",
        program=f"p{number}",
        status=status,
        score=score if passed else None,
        score_kind="estimate" if passed else "none",
        **more,
    )
    expansion = Expansion(number=number, operator="mutate", parents=parents)
    proposed = Proposed(expansion=expansion, round=number, program=f"p{number}", choices=choices)
    return Trial(proposed, evaluation, Decision(number=number, program=f"p{number}", kept=passed, best=best))


def memory(*trials: Trial) -> FailureMemory:
    return FailureMemory.of(SearchView(0, 40, trials))


def test_a_single_change_that_failed_is_remembered_and_cleared_when_it_passes() -> None:
    failed = trial(1, {**GOOD, "vector": 8}, "wrong_value")
    told = memory(trial(0, GOOD), failed)
    assert told.redraw_probability({**GOOD, "vector": 8}) >= 0.45
    assert told.redraw_probability({**GOOD, "vector": 8, "BLOCK": 128}) >= 0.45
    assert told.redraw_probability({**GOOD, "vector": 4}) == 0.0
    cleared = memory(trial(0, GOOD), failed, trial(2, {**GOOD, "vector": 8, "fuse": True}))
    assert cleared.redraw_probability({"BLOCK": 512, "vector": 8, "fuse": True}) == 0.0


def test_a_pair_that_failed_is_remembered_where_each_of_it_passed() -> None:
    trials = [
        trial(0, GOOD),
        trial(1, {**GOOD, "fuse": True}),
        trial(2, {**GOOD, "fuse": True, "vector": 8}),
        trial(3, {**GOOD, "vector": 8, "BLOCK": 64}, "wrong_value"),
        trial(4, {**GOOD, "vector": 8, "BLOCK": 128}, "wrong_value"),
        trial(5, {**GOOD, "fuse": True, "vector": 8, "BLOCK": 128}),
    ]
    told = memory(*trials)
    assert told.redraw_probability({"BLOCK": 512, "vector": 8, "fuse": False}) > 0.7
    assert told.redraw_probability({"BLOCK": 512, "vector": 8, "fuse": True}) == 0.0


def test_blame_halves_with_age() -> None:
    trials = [trial(0, GOOD), trial(1, {**GOOD, "vector": 8}, "compile_error")]
    later = [trial(n, GOOD) for n in range(2, 2 + HALF_LIFE)]
    young, old = memory(*trials), memory(*trials, *later)
    bad = {**GOOD, "vector": 8}
    assert old.redraw_probability(bad) == pytest.approx(young.redraw_probability(bad) / 2)


def test_the_machines_faults_are_not_remembered() -> None:
    told = memory(trial(0, GOOD), trial(1, {**GOOD, "vector": 8}, "unscorable", fault="device"))
    assert told.redraw_probability({**GOOD, "vector": 8}) == 0.0 and told.blame == {}


def test_a_clear_slowdown_against_the_parent_is_half_remembered() -> None:
    parent = trial(0, GOOD, score=10.0, best=True)
    told = memory(parent, trial(1, {**GOOD, "BLOCK": 1024}, score=15.0, parents=("p0",)))
    assert told.redraw_probability({**GOOD, "BLOCK": 1024}) == pytest.approx(0.5)
    near = memory(parent, trial(1, {**GOOD, "BLOCK": 1024}, score=10.5, parents=("p0",)))
    assert near.redraw_probability({**GOOD, "BLOCK": 1024}) == 0.0
    best_has_it = trial(2, {**GOOD, "BLOCK": 1024, "fuse": True}, score=5.0, best=True)
    innocent = memory(parent, trial(1, {**GOOD, "BLOCK": 1024}, score=15.0, parents=("p0",)), best_has_it)
    assert innocent.redraw_probability({**GOOD, "BLOCK": 1024}) == 0.0


def test_nothing_is_ruled_out_for_good() -> None:
    bad = {**GOOD, "vector": 8}
    told = memory(trial(0, GOOD), *(trial(n, {**bad, "BLOCK": n}, "timeout") for n in range(1, 12)))
    assert 0.5 < told.redraw_probability(bad) <= 0.9
