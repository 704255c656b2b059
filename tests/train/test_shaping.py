"""Shaping terms: bounded, added to a verified pass alone, and read from counters before the static record."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.records import Build, Evaluation, KernelResources, TargetResult
from hipwright.train.adapters import verl
from hipwright.train.environment import Environment, outcome
from hipwright.train.judging import settings
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import AnswerOutcome
from hipwright.train.rewards import reward
from hipwright.train.shaping import TERMS, shaping_terms, shaping_value, static_record
from tests.train import fakes
from tests.train.judging.judged import problem, program
from tests.train.test_rewards import groups, passed

NAMES = sorted({name for names in TERMS.values() for name in names})
VALUES = st.dictionaries(st.sampled_from(NAMES), st.floats(allow_nan=True, allow_infinity=True))
WEIGHT = 0.25


@given(VALUES)
def test_each_term_is_a_share(metrics: dict[str, float]) -> None:
    known = shaping_terms(metrics)
    assert all(0.0 <= value <= 1.0 for value in known.values())
    assert 0.0 <= shaping_value(metrics) <= 1.0


@pytest.mark.parametrize("name", ["source", "hipwright"])
@given(group=groups, metrics=st.lists(VALUES, min_size=8, max_size=8))
def test_only_a_verified_pass_gains(name: str, group: list[AnswerOutcome], metrics: list[dict[str, float]]) -> None:
    """Whatever counters a program that did not pass may show: its reward is the same as without shaping."""
    shown = [replace(one, metrics=more) for one, more in zip(group, metrics, strict=False)]
    plain, shaped = reward(name)(shown), reward(name, shaping=WEIGHT)(shown)
    for before, after in zip(plain, shaped, strict=True):
        found = before.outcome
        verified = found.scorable and found.correct and found.compiled and not found.hack
        if before.reward is None or not verified:
            assert after.reward == before.reward and "shaping" not in after.parts
        else:
            assert after.reward is not None
            assert before.reward - 1e-12 <= after.reward <= before.reward + WEIGHT + 1e-12


def test_values_by_hand() -> None:
    metrics = {"roofline_fraction": 0.5, "static_occupancy": 1.0, "coalescing": 0.25, "static_transactions": 1.0}
    assert shaping_terms(metrics) == {"roofline": 0.5, "occupancy": 1.0, "transactions": 0.25}, "counters come first"
    one = passed(2.0, metrics=metrics)
    shaping = WEIGHT * (0.5 + 1.0 + 0.25) / 3
    (plain,), (source,) = reward("source")([one]), reward("source", shaping=WEIGHT)([one])
    assert plain.reward is not None and source.reward == pytest.approx(plain.reward + shaping)
    own = reward("hipwright", shaping=WEIGHT)([replace(one, coverage=0.125)])[0]
    assert own.parts["shaping"] == pytest.approx(shaping / 2), "half of the work that counts as its own"
    alone = AnswerOutcome(status="wrong_value", fault="candidate", compiled=True, metrics=metrics)
    first = reward("hipwright", shaping=WEIGHT)([one, alone, alone])[0]
    assert first.parts["shaping"] == 0.0, "correctness first: most of the group is wrong"


def test_the_static_record_is_that_of_the_build() -> None:
    kernels = (
        KernelResources(name="a", occupancy=4, widest_vmem_bytes=16),
        KernelResources(name="b", occupancy=8, widest_vmem_bytes=4),
        KernelResources(name="c", occupancy=8),
    )
    targets = {"gfx942": TargetResult(target="gfx942", build=Build(target="gfx942", ok=True, kernels=kernels))}
    found = static_record(Evaluation(task="t", program="p", status="pass", targets=targets))
    assert found == {"static_occupancy": 0.5, "static_transactions": (16 + 4) / 2 / 16}
    host = {"cpu": TargetResult(target="cpu", build=Build(target="cpu", ok=True, kernels=kernels))}
    assert static_record(Evaluation(task="t", program="p", status="pass", targets=host)) == {}


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["source", "hipwright"])
def test_invalid_weights_are_refused(name: str, value: float) -> None:
    with pytest.raises(BadInput, match=r"shaping = .* is no weight"):
        reward(name, shaping=value)


def test_counters_need_a_gpu() -> None:
    told = settings.read_settings({"judge": {"counters": True, "targets": ["cpu", "gfx942"]}})
    with pytest.raises(BadInput, match="counters are read on a GPU"):
        settings.new_environment(told)


def test_verl_scores_with_shaping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings that verl's processes are handed reach the reward."""
    monkeypatch.setattr(settings, "_environments", {})

    def opened(asked: settings.EnvironmentSettings, gpus: Sequence[int] = ()) -> Environment:
        return fakes.shaped_environment(reward(asked.reward.name, **asked.reward.options))

    monkeypatch.setattr(settings, "new_environment", opened)

    def score(word: str, weight: float) -> float:
        told = {"reward": {"name": "source", "options": {"shaping": weight}}}
        return verl.compute_score("hipwright", fakes.answer(word), fakes.SOURCE, {}, environment=told)["score"]

    assert score("fast", 0.3) == pytest.approx(score("fast", 0.0) + 0.3 * fakes.OCCUPANCY)
    assert score("wrong", 0.3) == score("wrong", 0.0) == 0.0


@pytest.mark.slow
def test_a_wrong_program_gains_nothing_on_the_real_judge() -> None:
    """On the cpu target with a build for gfx942: both programs have a static record, the correct one alone gains."""
    with LocalJudge(("cpu", "gfx942"), open_tasks=1, workers=1) as judge:
        good, bad = program("row_sum_wave"), program("odd_tail", "broken")
        waiting = [judge.submit(problem("row_sum"), one) for one in (good, bad)]
        found = [
            outcome(future.result(timeout=240), one, (), judge.clock)
            for future, one in zip(waiting, (good, bad), strict=True)
        ]
    assert [one.correct for one in found] == [True, False]
    assert 0.0 < found[0].metrics["static_occupancy"] <= 1.0
    assert set(shaping_terms(found[0].metrics)) == {"roofline", "occupancy", "transactions"}
    right, wrong = reward("hipwright", shaping=WEIGHT)(found)
    assert right.parts["shaping"] > 0.05 and wrong.reward == 0.0
