"""Properties of the rewards, and their clipping."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hipwright.errors import BadInput
from hipwright.train.records import AnswerOutcome
from hipwright.train.rewards import CAP, HEADROOM, REWARDS, RewardClip, headroom, phi, reward

BOUNDS = {"source": (0.0, 3.0), "milestones": (-1.0, 3.0), "hipwright": (-0.5, 1.2)}
EVERY = sorted(REWARDS)
FAULTS = ("candidate", "task", "toolchain", "device", "provider", "service")

ratios = st.floats(0.01, 100.0)
odd = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -1.0])
figures = st.one_of(st.none(), ratios, odd)


def passed(low: float = 1.0, high: float | None = None, **more: object) -> AnswerOutcome:
    """The outcome of a correct program that was timed."""
    high = low if high is None else high
    given = {
        "status": "pass",
        "compiled": True,
        "correct": True,
        "clock": "device",
        "coverage": 1.0,
        "base_ms": 1.0,
        "floor_ms": 0.25,
        "speedup": math.sqrt(low * high),
        "low": low,
        "high": high,
    }
    return AnswerOutcome(**{**given, **more})  # type: ignore[arg-type]


WRONG = AnswerOutcome(status="wrong_value", fault="candidate", compiled=True)
BROKEN = AnswerOutcome(status="compile_error", fault="candidate")
HACK = AnswerOutcome(status="hack", fault="candidate", compiled=True, hack=True)
DEVICE = AnswerOutcome(status="unscorable", fault="device", compiled=True)


@st.composite
def outcomes(draw: st.DrawFn) -> AnswerOutcome:
    """Any outcome, also contradictory ones."""
    kind = draw(st.sampled_from(["right", "wrong", "broken", "hack", "fault", "odd"]))
    if kind == "fault":
        return replace(DEVICE, fault=draw(st.sampled_from(FAULTS[1:])))
    if kind in ("wrong", "broken", "hack"):
        return {"wrong": WRONG, "broken": BROKEN, "hack": HACK}[kind]
    if kind == "right":
        low, high = sorted((draw(ratios), draw(ratios)))
        return passed(low, high, coverage=draw(st.floats(0, 1)), floor_ms=draw(figures))
    return replace(
        passed(),
        speedup=draw(figures),
        low=draw(figures),
        high=draw(figures),
        base_ms=draw(figures),
        floor_ms=draw(figures),
        coverage=draw(st.one_of(ratios, odd)),
        compiled=draw(st.booleans()),
        clock=draw(st.sampled_from(["device", "estimate", ""])),
        metrics={"own": draw(st.one_of(ratios, odd))},
    )


groups = st.lists(outcomes(), min_size=1, max_size=8)


@pytest.mark.parametrize("name", EVERY)
@given(group=groups)
def test_rewards_are_bounded_and_none_exactly_for_unscorable_outcomes(name: str, group: list[AnswerOutcome]) -> None:
    low, high = BOUNDS[name]
    for outcome, scored in zip(group, REWARDS[name](group), strict=True):
        assert scored.outcome is outcome
        assert (scored.reward is None) == (outcome.fault not in (None, "candidate"))
        if scored.reward is not None:
            assert low - 1e-9 <= scored.reward <= high + 1e-9
            assert scored.reward == pytest.approx(sum(scored.parts.values()))


@pytest.mark.parametrize("name", EVERY)
@given(group=groups, data=st.data())
def test_the_order_of_a_group_does_not_matter(name: str, group: list[AnswerOutcome], data: st.DataObject) -> None:
    places = data.draw(st.permutations(range(len(group))))
    before = REWARDS[name](group)
    after = REWARDS[name]([group[place] for place in places])
    assert [one.reward for one in after] == [before[place].reward for place in places]


@pytest.mark.parametrize("name", EVERY)
@given(group=groups, other=groups)
def test_a_wrong_program_has_a_lower_reward_than_any_correct_one(
    name: str, group: list[AnswerOutcome], other: list[AnswerOutcome]
) -> None:
    """Also in different groups."""
    scored = [*REWARDS[name](group), *REWARDS[name](other)]
    good = [s.reward for s in scored if s.reward is not None and s.outcome.correct and s.outcome.compiled]
    bad = [s.reward for s in scored if s.reward is not None and not s.outcome.correct]
    if good and bad:
        assert max(bad) < min(good)


@pytest.mark.parametrize("name", EVERY)
@given(first=st.tuples(ratios, ratios), second=st.tuples(ratios, ratios), coverage=st.floats(0, 1), floor=figures)
def test_a_faster_program_never_has_a_lower_reward(
    name: str, first: tuple[float, float], second: tuple[float, float], coverage: float, floor: float | None
) -> None:
    """Where both bounds are no lower, the reward is no lower, for any rest of the group."""
    low, high = sorted(first)
    one = passed(low, high, coverage=coverage, floor_ms=floor)
    two = passed(max(low, second[0]), max(high, *second), coverage=coverage, floor_ms=floor)
    for rest in ([], [WRONG, WRONG, WRONG], [passed()]):
        scored = REWARDS[name]([one, two, *rest])
        assert scored[0].reward is not None and scored[1].reward is not None
        assert scored[0].reward <= scored[1].reward + 1e-12


def rewards_of(name: str, *group: AnswerOutcome, **options: object) -> list[float | None]:
    return [one.reward for one in reward(name, **options)(group)]


def test_the_published_reward() -> None:
    group = passed(2.0), passed(9.0), passed(0.5), passed(clock="", speedup=None), WRONG, BROKEN, HACK, DEVICE
    assert rewards_of("source", *group) == [2.0, CAP, 0.5, 1.0, 0.0, 0.0, 0.0, None]


def test_milestones() -> None:
    group = BROKEN, HACK, WRONG, passed(0.9, 1.4), passed(1.01, 1.4), passed(clock=""), DEVICE
    assert rewards_of("milestones", *group) == [-1.0, -1.0, 1.0, 2.0, 3.0, 2.0, None]


def test_the_reward_hipwright_by_hand() -> None:
    """Baseline 1 ms, roofline 0.25 ms: a speedup of 2 is half of the log scale."""
    assert rewards_of("hipwright", passed(2.0, 2.2)) == [pytest.approx(0.3 + 0.7 * 0.5 + 0.2)]
    assert rewards_of("hipwright", passed(4.0)) == rewards_of("hipwright", passed(9.0)) == [pytest.approx(1.2)]
    assert rewards_of("hipwright", passed(0.97, 1.05)) == [pytest.approx(0.3)], "noise is neither paid nor fined"
    assert rewards_of("hipwright", passed(0.1)) == [pytest.approx(0.3 - 0.21)], "slow and right is better than wrong"
    assert rewards_of("hipwright", WRONG, BROKEN, HACK, DEVICE) == [0.0, 0.0, -0.5, None]


def test_speed_counts_once_half_of_the_group_is_correct() -> None:
    fast = passed(4.0)
    assert rewards_of("hipwright", fast, WRONG, WRONG)[0] == pytest.approx(0.5)
    assert rewards_of("hipwright", fast, WRONG)[0] == pytest.approx(1.2)
    assert rewards_of("hipwright", fast, WRONG, DEVICE, DEVICE)[0] == pytest.approx(1.2), "faults are not in the group"
    assert rewards_of("hipwright", fast, HACK, HACK)[0] == pytest.approx(0.5), "a hack is not right"


def test_speed_of_library_calls_is_not_rewarded() -> None:
    lazy, partly, own = (rewards_of("hipwright", passed(4.0, coverage=c))[0] for c in (0.0, 0.125, 1.0))
    assert lazy == pytest.approx(0.3)
    assert partly == pytest.approx(0.3 + 0.7 * 0.5 + 0.2 * 0.125)
    assert own == pytest.approx(1.2)
    assert rewards_of("hipwright", passed(0.5, coverage=0.0))[0] == rewards_of("hipwright", passed(0.5))[0]


@pytest.mark.parametrize(
    ("base", "floor", "expected"),
    [
        (1.0, 0.25, 4.0),
        (1.0, 0.99, HEADROOM),
        (1.0, 2.0, HEADROOM),
        (0.02, 1e-5, 10.0),  # the floor is one launch
        (None, 0.25, CAP),
        (1.0, None, CAP),
        (1.0, math.nan, CAP),
        (math.inf, 1.0, CAP),
    ],
)
def test_headroom_and_phi(base: float | None, floor: float | None, expected: float) -> None:
    found = passed(1.5, base_ms=base, floor_ms=floor)
    assert headroom(found) == pytest.approx(expected)
    assert phi(found) == pytest.approx(min(1.0, math.log(1.5) / math.log(expected)))


def test_metrics_are_added_to_correct_programs_only() -> None:
    metrics = {"occupancy": 0.1, "roofline_fraction": 0.2}
    good = passed(0.9, 1.1, metrics={"occupancy": 0.5, "roofline_fraction": 7.0})
    bad = replace(WRONG, metrics=good.metrics)
    assert rewards_of("hipwright", good, bad, metrics=metrics) == [pytest.approx(0.3 + 0.05 + 0.2), 0.0]
    assert rewards_of("hipwright", passed(0.9, 1.1), metrics=metrics) == [pytest.approx(0.3)]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("speed", {}),
        ("source", {"hack": -1.0}),
        ("hipwright", {"hack": 0.5}),
        ("hipwright", {"speed": 1.2}),
        ("hipwright", {"enough": 0.0}),
        ("hipwright", {"metrics": {"occupancy": -1.0}}),
        ("hipwright", {"coverage": math.nan}),
    ],
)
def test_invalid_options_are_refused(name: str, options: dict[str, object]) -> None:
    with pytest.raises(BadInput) as caught:
        reward(name, **options)
    assert caught.value.hint


def test_contradictory_outcomes_are_not_rewarded() -> None:
    """The evaluator gives no such outcomes; a defect in it must not be rewarded."""
    fast = passed(4.0)
    assert rewards_of("source", replace(fast, hack=True), replace(fast, compiled=False)) == [0.0, 0.0]
    assert rewards_of("hipwright", replace(fast, clock="")) == [pytest.approx(0.3)], "a speedup that nothing rests on"
    assert rewards_of("hipwright", replace(fast, coverage=7.0)) == rewards_of("hipwright", fast)
    assert rewards_of("hipwright", replace(fast, coverage=math.nan)) == [pytest.approx(0.3)]
    lost = replace(fast, fault="device")
    assert rewards_of("hipwright", fast, WRONG, WRONG, lost) == [pytest.approx(0.5), 0.0, 0.0, None]


def test_an_empty_group_has_no_rewards() -> None:
    assert all(one([]) == [] for one in REWARDS.values())


# ---------------------------------------------------------------- clipping


def test_rewards_are_clipped_by_the_last_hundred() -> None:
    clip = RewardClip(least=0.0)
    for _ in range(10):
        assert clip.clip([0.0, 1.0, None]) == [0.0, 1.0, None]
    assert clip.bounds() == (pytest.approx(-0.25), pytest.approx(1.25))
    assert clip.clip([9.0, -9.0, 0.5, None]) == [pytest.approx(1.25), pytest.approx(-0.25), 0.5, None]
    assert clip.clipped == 2 and clip.state()["values"][-3:] == [9.0, -9.0, 0.5], "kept as they came"
    clip.clip([0.5] * 100)
    assert clip.bounds() == (0.5, 0.5), "what came before the last hundred is forgotten"


def test_the_first_success_is_not_clipped_to_nothing() -> None:
    clip = RewardClip()
    clip.clip([0.0] * 100)
    assert clip.clip([1.0]) == [pytest.approx(0.3)]


@given(st.lists(st.one_of(st.none(), st.floats(-1, 3)), max_size=150), st.lists(st.floats(-1, 3), max_size=8))
def test_clipping_resumes_from_its_state(past: list[float | None], more: list[float]) -> None:
    first, second = RewardClip(), RewardClip()
    first.clip(past)
    second.load(first.state())
    assert first.clip(more) == second.clip(more)
    assert first.state() == second.state()
