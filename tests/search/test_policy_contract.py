"""The contract of every registered policy. A new policy is tested here as soon as it is in the registry."""

from __future__ import annotations

import random
from functools import cache

import pytest
from policy_histories import history, with_models

from hipwright.errors import BadInput
from hipwright.search import POLICIES, SearchView, Trial, policy

EVERY_POLICY = pytest.mark.parametrize("name", POLICIES)


@cache
def views(name: str) -> tuple[SearchView, ...]:
    """An empty view, one where nothing passed, and short and long ones."""
    return (
        SearchView(3, 40),
        history(name, 1, 2, fail=1.0),
        *(history(name, seed, rounds) for seed in range(4) for rounds in (1, 3, 9)),
    )


@EVERY_POLICY
def test_selects_exactly_k_numbered_expansions(name: str) -> None:
    for view in views(name):
        for k in (1, 4, 7):
            expansions = policy(name).select(view, k, random.Random(5))
            assert [e.number for e in expansions] == list(range(view.next_number, view.next_number + k))
            assert all(e.seed == view.seed for e in expansions)


@EVERY_POLICY
def test_starts_with_the_actions_of_the_source(name: str) -> None:
    view = SearchView(1, 20, initial=({"choices": {"BLOCK": 64}}, {"choices": {"BLOCK": 128}}))
    first = policy(name).select(view, 4, random.Random(0))
    assert [e.operator for e in first[:2]] == ["default", "default"]
    assert [e.action["choices"] for e in first[:2]] == [{"BLOCK": 64}, {"BLOCK": 128}]


@EVERY_POLICY
def test_parents_are_verified_programs(name: str) -> None:
    for view in views(name):
        good = {t.proposed.program for t in view.verified}
        for expansion in policy(name).select(view, 20, random.Random(8)):
            assert set(expansion.parents) <= good


@EVERY_POLICY
def test_is_a_pure_function_of_view_and_random_numbers(name: str) -> None:
    for view in views(name):
        copy = SearchView(view.seed, view.budget, view.trials, view.initial, view.settings)
        one = policy(name).select(view, 6, random.Random(2))
        assert policy(name).select(copy, 6, random.Random(2)) == one
        for trial in view.trials:
            if trial.evaluation is not None:
                past = SearchView(view.seed, view.budget, view.trials[: trial.number], view.initial, view.settings)
                undecided = Trial(trial.proposed, trial.evaluation)
                assert policy(name).accept(past, undecided, trial.evaluation) == trial.decision


@EVERY_POLICY
def test_accepts_programs_that_a_model_wrote(name: str) -> None:
    for view in views(name):
        mixed = with_models(view)
        expansions = policy(name).select(mixed, 9, random.Random(6))
        assert [e.number for e in expansions] == list(range(view.next_number, view.next_number + 9))
        assert {p for e in expansions for p in e.parents} <= {t.proposed.program for t in view.verified}
        for trial in mixed.trials:
            if trial.evaluation is not None:
                past = SearchView(view.seed, view.budget, mixed.trials[: trial.number], view.initial, view.settings)
                decision = policy(name).accept(past, Trial(trial.proposed, trial.evaluation), trial.evaluation)
                assert trial.passed or not (decision.kept or decision.best)


@EVERY_POLICY
def test_keeps_only_what_passed_and_says_why(name: str) -> None:
    for view in views(name):
        for trial in view.trials:
            assert trial.decision is not None and trial.decision.reason
            if trial.decision.kept or trial.decision.best:
                assert trial.passed


@EVERY_POLICY
def test_best_is_never_slower_than_the_one_before(name: str) -> None:
    for view in views(name):
        bests = [t.evaluation.score for t in view.trials if t.decision and t.decision.best and t.evaluation]
        assert bests == sorted(bests, reverse=True)  # type: ignore[type-var]
        scores = [t.evaluation.score for t in view.verified if t.evaluation]
        assert not scores or bests[-1] <= min(scores) / 0.98  # type: ignore[operator, type-var]


def test_an_unknown_policy_is_bad_input() -> None:
    with pytest.raises(BadInput, match="unknown policy") as caught:
        policy("genius")
    assert all(name in caught.value.hint for name in POLICIES)
