"""The evaluation's figures, on outcomes written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.train.mini.figures import faster, fraction, interval, tables
from hipwright.train.mini.settings import MiniEvaluationSettings
from hipwright.train.mini.tasks import Grammar
from hipwright.train.records import AnswerOutcome
from hipwright.train.rewards import reward

PROBLEMS = [problem for split in ("shapes", "deeper") for problem in Grammar(0).problems(split, 12, 12)]  # type: ignore[arg-type]
FAST = AnswerOutcome(
    status="pass",
    compiled=True,
    correct=True,
    clock="device",
    speedup=1.5,
    low=1.3,
    high=1.7,
    base_ms=0.3,
    time_ms=0.2,
    floor_ms=0.1,
    coverage=1.0,
)
SLOW = AnswerOutcome(
    status="pass",
    compiled=True,
    correct=True,
    clock="device",
    speedup=0.5,
    low=0.4,
    high=0.6,
    base_ms=0.3,
    time_ms=0.6,
    floor_ms=0.1,
    coverage=1.0,
)
WRONG = AnswerOutcome(status="wrong_value", fault="candidate", compiled=True)
HACK = AnswerOutcome(status="hack", fault="candidate", compiled=True, hack=True)
BROKEN = AnswerOutcome(status="parse_error", fault="candidate")
AWAY = AnswerOutcome(status="timeout", fault="device")
TEXTS = {"fast": FAST, "slow": SLOW, "wrong": WRONG, "hack": HACK, "broken": BROKEN, "away": AWAY}


def made(arms: dict[tuple[str, int], list[str]], best: dict[str, tuple[float, int]] | None = None) -> dict[str, Any]:
    """The tables, where every task of an arm has the same samples."""
    drawn = {key: {p.name: texts for p in PROBLEMS} for key, texts in arms.items()}
    outcomes = {(p.name, text): outcome for p in PROBLEMS for text, outcome in TEXTS.items()}
    return tables(
        PROBLEMS, drawn, outcomes, best or {}, reward("hipwright"), MiniEvaluationSettings(samples=4, examples=2)
    )


def row(found: dict[str, Any], arm: str, split: str, seed: int | None = 0) -> dict[str, Any]:
    (one,) = [r for r in found["arms"] if (r["arm"], r["split"], r["seed"]) == (arm, split, seed)]
    return dict(one)


def test_shares_are_of_the_scorable_samples() -> None:
    found = row(made({("sft", 0): ["fast", "slow", "wrong", "away"]}), "sft", "shapes")
    assert found["tasks"] == 12
    assert found["compiled"][0] == 1.0
    assert found["correct"][0] == pytest.approx(2 / 3)
    assert found["fast_1"][0] == found["fast_1.2"][0] == pytest.approx(1 / 3)
    assert found["roofline"][0] == pytest.approx((0.5 + 1 / 6) / 2)
    assert found["infra"] == 0.25
    assert found["pass_at_k"] == {"1": pytest.approx(2 / 3), "2": 1.0}


def test_hacks_and_infrastructure_faults_are_separate() -> None:
    found = row(made({("grpo", 0): ["hack", "fast", "away", "away"]}), "grpo", "deeper")
    assert (found["hack"], found["infra"]) == (0.5, 0.5)
    assert row(made({("base", 0): ["away"] * 4}), "base", "deeper")["correct"] is None


def test_seeds_are_pooled_task_by_task() -> None:
    found = made({("grpo", 0): ["fast"] * 4, ("grpo", 1): ["wrong"] * 4})
    assert row(found, "grpo", "shapes", None)["correct"][0] == 0.5
    assert row(found, "grpo", "shapes", None)["pass_at_k"]["8"] == 1.0
    assert row(found, "grpo", "shapes", 1)["correct"][0] == 0.0


def test_comparisons_are_paired_and_signed() -> None:
    found = made({("continued", 0): ["slow"] * 4, ("grpo", 0): ["fast"] * 4, ("sft", 0): ["broken"] * 4})
    by = {(c["better"], c["worse"], c["split"], c["metric"]): c["difference"] for c in found["comparisons"]}
    value, low, high = by["grpo", "continued", "deeper", "reward"]
    assert low == pytest.approx(value) == pytest.approx(high)
    assert value > 0.3
    assert by["grpo", "continued", "deeper", "correct"] == [0.0, 0.0, 0.0]
    assert by["continued", "sft", "shapes", "compiled"][0] == 1.0
    assert not any(c["split"] == "compositions" for c in found["comparisons"])


def test_levels_are_the_tasks_of_a_number_of_operators() -> None:
    """The tasks of a level are of all splits; a seed's values are means with those of the others."""
    deep = {p.name for p in PROBLEMS if p.facts["depth"] == 4}
    drawn = {
        key: {p.name: [text if p.name in deep else "broken", "away"] for p in PROBLEMS}
        for key, text in ((("sft", 0), "slow"), (("grpo", 0), "fast"), (("grpo", 1), "wrong"))
    }
    outcomes = {(p.name, text): outcome for p in PROBLEMS for text, outcome in TEXTS.items()}
    found = tables(PROBLEMS, drawn, outcomes, {}, reward("hipwright"), MiniEvaluationSettings(samples=2))["levels"]
    depths = [p.facts["depth"] for p in PROBLEMS]
    assert [(r["level"], r["arm"]) for r in found] == [(n, a) for n in sorted(set(depths)) for a in ("sft", "grpo")]
    by = {(r["level"], r["arm"]): r for r in found}
    assert all(r["tasks"] == depths.count(level) for (level, _), r in by.items())
    assert (by[4, "sft"]["correct"][0], by[4, "sft"]["fast_1"][0]) == (1.0, 0.0)
    assert (by[4, "grpo"]["compiled"][0], by[4, "grpo"]["fast_1.2"][0]) == (1.0, 0.5)
    assert by[5, "grpo"]["compiled"] == by[1, "grpo"]["compiled"] == [0.0, 0.0, 0.0]


def test_regret_is_the_time_over_the_best_schedules() -> None:
    best = {PROBLEMS[0].name: (0.1, 85), PROBLEMS[1].name: (0.2, 85)}
    (found,) = made({("sft", 0): ["fast", "slow"]}, best)["regret"]
    assert (found["tasks"], found["schedules"]) == (2, 170)
    assert found["ratio"][0] == pytest.approx((2.0 * 6.0 * 1.0 * 3.0) ** 0.25)
    assert found["best_of"][0] == pytest.approx(2.0**0.5)


def test_examples_show_every_arm_for_the_same_task() -> None:
    found = made({("base", 0): ["broken"], ("sft", 0): ["slow"], ("sft", 1): ["fast"]})["examples"]
    assert [set(one["arms"]) for one in found] == [{"base", "sft"}] * 2
    assert found[0]["arms"]["sft"]["completion"] == "slow"
    assert {one["split"] for one in found} == {"shapes", "deeper"}


def test_faster_needs_the_lower_bound() -> None:
    assert faster(FAST, 1.2)
    assert not faster(FAST, 1.4)
    assert not faster(WRONG, 0.0)
    assert fraction(FAST) == 0.5
    assert fraction(WRONG) is None


def test_an_interval_holds_its_mean() -> None:
    assert interval([]) is None
    mean, low, high = interval([0.0, 1.0] * 20) or []
    assert low < mean == 0.5 < high
