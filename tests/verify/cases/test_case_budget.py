"""The cpu target leaves out cases by their cost alone: a cheap task keeps all, a costly one the least."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.audit.cases import select
from hipwright.records import Verdict
from hipwright.sandbox import Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.verify.cpu import case_budget, cases
from hipwright.verify.cpu.case_budget import LEAST_FAMILIES, CaseBudget, expectation_seconds
from tests.verify.test_programs import verify

FAULTS = sorted(
    case.name
    for case in select(form="program")
    if case.kind == "broken" and not {"pass", "compile_error"}.intersection(case.statuses)
)


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case costs more than the budget has."""
    monkeypatch.setattr(case_budget, "BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(cases, "FEW_CALLS_S", 0.0)


def families(verdict: Verdict) -> dict[str, list[str]]:
    found: dict[str, list[str]] = verdict.checks["evidence"]["cases"]
    return found


def test_a_cheap_task_keeps_all_cases(tasks: Any, candidates: Zygote, cache: BuildCache) -> None:
    verdict = verify("honest", "row_sum_wave", tasks, candidates, cache)
    assert verdict.passed and not {"case_budget", "few_calls", "unchecked_repeats"} & set(verdict.checks)
    assert verdict.checks["calls_on_one_state"] == 5
    assert not any("are spent" in why for name, why in verdict.skipped.items() if "given" not in name)
    assert len(max(families(verdict).values(), key=len)) > 15


def test_a_costly_one_keeps_the_least_and_says_so(
    costly: None, tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    verdict = verify("honest", "row_sum_wave", tasks, candidates, cache)
    assert verdict.passed, verdict.message
    main, *others = families(verdict).values()
    assert {"given", "offset", "normal", "scales", "strided"} <= set(main) <= {*LEAST_FAMILIES, "mutated"}
    assert [one for one in others if "scales" in one], "an unseen shape"
    assert verdict.checks["case_budget"]["left_out"] > 20 and verdict.checks["few_calls"]
    left = next(why for name, why in verdict.skipped.items() if name.endswith("/outliers"))
    assert "are spent" in left and verdict.checks["calls_on_one_state"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_refused_by_the_least(
    name: str, costly: None, tasks: Any, candidates: Zygote, cache: BuildCache
) -> None:
    assert not verify("broken", name, tasks, candidates, cache).passed


def test_the_budget_answers_alike_and_prefers_what_was_asked_first() -> None:
    budget = CaseBudget(seconds=3.0)
    assert [budget.allows(name, 1.0) for name in "abacda"] == [True, True, True, True, False, True]
    assert budget.to_dict() == {"budget_s": 3.0, "case_s": 1.0, "left_out": 1} and "1.0 s" in budget.why("d")


def test_parameters_and_operations_cost() -> None:
    assert expectation_seconds(4 * 90_000_000, 1e10) > 5.0 > 0.1 > expectation_seconds(4 * 300_000, 1e6)
