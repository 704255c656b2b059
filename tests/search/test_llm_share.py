"""LlmShare: models get a share of any policy's expansions, without changing its parents, numbers or purity."""

from __future__ import annotations

import random
from typing import Any

import pytest
from landscape import write

from hipwright.archive import Proposed
from hipwright.records import Decision, Evaluation, Expansion
from hipwright.search import POLICIES, SearchView, Trial, policy
from hipwright.search.policies.llm_share import MODEL_OPERATORS, LlmShare, exemplars

LLM = {"agents": {"llm": True, "share": 0.5, "repairs": 2}}


def trial(number: int, *, author: str = "engine", score: float | None = 10.0, operator: str = "mutate", **action: Any):
    program = write({"n": number}).key
    status = "pass" if score else "wrong_value"
    evaluation = Evaluation(
        task="t",
        program=program,
        status=status,
        fault=None if score else "candidate",
        score=score,
        score_kind="estimate" if score else "none",
    )
    expansion = Expansion(number=number, operator=operator, action=action)
    notes = {"author": author}
    choices = {} if author == "llm" else {"BLOCK": 64}
    proposed = Proposed(expansion=expansion, round=number // 4, program=program, choices=choices, notes=notes)
    decision = Decision(number=number, program=program, kept=bool(score), best=number == 0 and bool(score))
    return Trial(proposed, evaluation, decision)


def selected(view: SearchView, k: int = 40, name: str = "islands") -> list[Expansion]:
    return LlmShare(policy(name)).select(view, k, random.Random(1))


@pytest.mark.parametrize("name", POLICIES)
def test_without_models_the_policy_is_untouched(name: str) -> None:
    view = SearchView(5, 60, (trial(0), trial(1, score=12.0)), settings={"agents": {"without": ["screener"]}})
    assert selected(view, name=name) == policy(name).select(view, 40, random.Random(1))


@pytest.mark.parametrize("name", POLICIES)
def test_about_half_is_the_models_and_the_rest_is_as_before(name: str) -> None:
    view = SearchView(5, 60, (trial(0), trial(1, score=12.0)), settings=LLM)
    got, before = selected(view, 200, name), policy(name).select(view, 200, random.Random(1))
    theirs = [e for e in got if e.operator in MODEL_OPERATORS]
    assert 70 <= len(theirs) <= 130 and {e.operator for e in theirs} == {"improve", "plan"}
    assert [e.number for e in got] == [e.number for e in before]
    assert [e for e in got if e not in theirs] == [b for b, e in zip(before, got, strict=True) if e not in theirs]
    verified = {t.proposed.program for t in view.verified}
    assert all(e.parents and set(e.parents) <= verified for e in theirs)


def test_the_engine_starts_and_the_models_translate_until_something_is_verified() -> None:
    first = selected(SearchView(5, 60, settings=LLM), 12)
    assert first[0].operator == "default"
    assert {e.operator for e in first[1:]} == {"random", "translate"}
    failed = SearchView(5, 60, (trial(0, score=None),), settings=LLM)
    assert {e.operator for e in selected(failed)} <= {"random", "default", "translate"}


def test_a_models_failure_is_repaired_with_its_evidence_the_latest_first_and_not_for_ever() -> None:
    trials = [trial(0), trial(1, author="llm", score=None, operator="translate")]
    trials.append(trial(2, author="llm", score=None, operator="translate"))
    repairs = [e for e in selected(SearchView(5, 60, tuple(trials), settings=LLM)) if e.operator == "repair"]
    assert [e.action["of"] for e in repairs] == [2, 1]
    assert repairs[0].action["failed"] == trials[2].proposed.program and repairs[0].action["tries"] == 1
    trials.append(trial(3, author="llm", score=None, operator="repair", of=2, tries=1))
    repairs = [e for e in selected(SearchView(5, 60, tuple(trials), settings=LLM)) if e.operator == "repair"]
    assert [(e.action["of"], e.action["tries"]) for e in repairs] == [(3, 2), (1, 1)]
    trials.append(trial(4, author="llm", score=None, operator="repair", of=3, tries=2))
    repairs = [e for e in selected(SearchView(5, 60, tuple(trials), settings=LLM)) if e.operator == "repair"]
    assert [e.action["of"] for e in repairs] == [1]


def test_the_machines_fault_is_not_repaired() -> None:
    broken = trial(1, author="llm", score=None, operator="translate")
    evaluation = Evaluation(task="t", program="p", status="unscorable", fault="device")
    view = SearchView(5, 60, (trial(0), Trial(broken.proposed, evaluation, broken.decision)), settings=LLM)
    assert not [e for e in selected(view) if e.operator == "repair"]


def test_children_of_a_models_program_are_a_models() -> None:
    view = SearchView(5, 60, (trial(0, author="llm"),), settings={"agents": {"llm": True, "share": 0.0}})
    for expansion in selected(view):
        assert expansion.operator in MODEL_OPERATORS or not expansion.parents


def test_exemplars_come_from_two_buckets() -> None:
    view = SearchView(5, 60, tuple(trial(n, score=s) for n, s in enumerate((20.0, 10.0, 11.0, 30.0))))
    keys = [t.proposed.program for t in view.trials]
    assert exemplars(view, keys[1]) == (keys[2], keys[0])
    assert exemplars(view, keys[3]) == (keys[1], keys[0])
    assert exemplars(SearchView(5, 60, (trial(0),)), keys[0]) == ()


def test_pure() -> None:
    view = SearchView(5, 60, (trial(0), trial(1, author="llm", score=None, operator="translate")), settings=LLM)
    assert selected(view) == selected(SearchView(5, 60, view.trials, settings=LLM))
