"""What a run gives up when the engine's first answer is refused: a right program is owed, whatever the budget."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from landscape import SPACE, TASK, Judge, begin, canonical, go_on, write
from msgspec import structs

from hipwright.archive import Archive, show
from hipwright.records import Evaluation, Program, TargetResult, Timing, Verdict, Versus
from hipwright.search import EngineSource
from hipwright.search.fallback import EVERY_OPERATOR, OTHER_SIZES, PLAIN_PLAN, Fallback, StepOutcome, steps
from tests.load import Watch

NODES = tuple(f"op_{n}" for n in range(9))


def explain(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Every three operators are a kernel, without those that were given up."""
    given_up = str(choices.get("given_up", "")).split(",")
    left = [] if {EVERY_OPERATOR, PLAIN_PLAN} & set(given_up) else [n for n in NODES if n not in given_up]
    groups = [[n for n in NODES[k : k + 3] if n in left] for k in (0, 3, 6)]
    return {"kernels": [{"name": f"kernel_{group[0]}", "nodes": group} for group in groups if group]}


def refusal(program: Program, evidence: dict[str, Any]) -> Evaluation:
    said: Any = {"status": "out_of_bounds", "fault": "candidate", "message": "beyond"}
    result = TargetResult(target="cpu", verdict=Verdict(stage="launch", evidence=evidence, **said))
    return Evaluation(task=TASK.key, program=program.key, targets={"cpu": result}, **said)


@dataclass
class Faulty(Judge):
    """Refuses programs in which a guilty operator is in a kernel. named: whether the evidence says in which."""

    guilty: frozenset[str] = frozenset()
    named: bool = True
    stubborn: bool = False  # refuses the engine's library calls too
    pause: float = 0.0

    def evaluate(self, program: Program) -> Evaluation:
        choices = json.loads(program.text)
        kernels = explain({} if self.stubborn and choices.get("given_up") != PLAIN_PLAN else choices)["kernels"]
        broken = [k for k in kernels if self.guilty & set(k["nodes"])]
        if not broken:
            return super().evaluate(program)
        time.sleep(self.pause)
        self.calls.append(program.key)
        return refusal(program, {"kernel": f"{broken[0]['name']}_exact"} if self.named else {})


@dataclass
class Timed(Judge):
    """A GPU's figures: the speedup over eager by what is given up."""

    speedups: Mapping[str, float] = field(default_factory=dict)
    device: str = "a GPU"

    def evaluate(self, program: Program) -> Evaluation:
        passed = super().evaluate(program)
        speedup = self.speedups[json.loads(program.text).get("given_up", "")]
        interval = (speedup * 0.99, speedup * 1.01)
        figures: Any = {"samples_ms": (1.0,), "baseline_ms": (speedup,), "pairs": 1}
        versus = {"eager": Versus(baseline="eager", speedup=speedup, interval=interval, **figures)}
        timing = Timing(device=self.device, architecture="sm_90", median_ms=1.0, versus=versus)
        targets = {"cuda": TargetResult(target="cuda", timing=timing)}
        return structs.replace(passed, targets=targets, score_kind="measured", score=1.0)


def source() -> EngineSource:
    return EngineSource(SPACE, write, Fallback(explain, NODES))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("budget", [1, 12])
def test_the_guilty_groups_are_given_up(archive: Archive, named: bool, budget: int) -> None:
    judge = Faulty(guilty=frozenset({"op_1", "op_7"}), named=named)
    result = begin(archive, judge, budget=budget, source=source())
    assert result.program is not None and result.evaluation is not None and result.evaluation.passed
    given_up = set(json.loads(result.program.text)["given_up"].split(","))
    assert given_up == {*NODES[:3], *NODES[6:]}, "two groups are guilty; the third stays a kernel"
    trials = show(archive, "latest").trials
    taken = [t for t in trials if t.operator == "fallback"]
    assert taken and all("fallback" in t.notes and "given_up" in t.notes for t in taken)
    assert sum(t.operator != "fallback" for t in trials) >= budget, "steps do not count against the budget"


def test_all_is_given_up_at_last(archive: Archive) -> None:
    judge = Faulty(guilty=frozenset(NODES), stubborn=True)
    result = begin(archive, judge, budget=1, source=source())
    assert result.program is not None and json.loads(result.program.text)["given_up"] == PLAIN_PLAN


@dataclass
class AtOtherSizes(Judge):
    """Refuses what claims sizes at which the module takes another branch, and kernels too where `kernels`."""

    kernels: bool = False

    def evaluate(self, program: Program) -> Evaluation:
        given_up = str(json.loads(program.text).get("given_up", "")).split(",")
        if OTHER_SIZES in given_up and (EVERY_OPERATOR in given_up or not self.kernels):
            return super().evaluate(program)
        self.calls.append(program.key)
        return refusal(program, {})


@pytest.mark.parametrize("kernels", [False, True])
def test_other_sizes_are_given_up_where_even_a_plain_plan_is_refused(archive: Archive, kernels: bool) -> None:
    result = begin(archive, AtOtherSizes(kernels=kernels), budget=1, source=source())
    assert result.program is not None
    given_up = set(json.loads(result.program.text)["given_up"].split(","))
    assert given_up == ({EVERY_OPERATOR, OTHER_SIZES} if kernels else {OTHER_SIZES})


@pytest.mark.parametrize("named", [True, False])
def test_operators_that_cannot_be_written_are_given_up_in_every_step(archive: Archive, named: bool) -> None:
    def careful(choices: Mapping[str, Any]) -> Program:
        if "op_4" not in str(choices.get("given_up")).split(","):
            raise AttributeError("op_4 has no lowering")
        return write(choices)

    base = {"given_up": "op_4"}
    partly = EngineSource(SPACE, careful, Fallback(explain, NODES, base["given_up"]), base)
    result = begin(archive, Faulty(guilty=frozenset({"op_1"}), named=named), budget=1, source=partly)
    assert result.program is not None
    assert set(json.loads(result.program.text)["given_up"].split(",")) == {*NODES[:3], "op_4"}


def test_a_step_that_cannot_be_written_is_followed_by_the_next(archive: Archive) -> None:
    def failing(choices: Mapping[str, Any]) -> Program:
        if choices.get("given_up") not in (None, "", PLAIN_PLAN):
            raise KeyError("the engine's own fault")
        return write(choices)

    judge = Faulty(guilty=frozenset(NODES), stubborn=True)
    result = begin(archive, judge, budget=1, source=EngineSource(SPACE, failing, Fallback(explain, NODES)))
    assert result.program is not None and json.loads(result.program.text)["given_up"] == PLAIN_PLAN
    failed = [trial for trial in show(archive, "latest").trials if trial.status == "not proposed"]
    assert failed and all("the engine's own fault" in one.reason and one.notes["fallback"] for one in failed)


def test_time_that_is_over_ends_the_steps(archive: Archive) -> None:
    judge = Faulty(guilty=frozenset(NODES), stubborn=True, named=False, pause=0.2)
    with Watch() as watch:
        result = begin(archive, judge, budget=1, source=source(), max_minutes=0.3 / 60)
    assert result.reason == "max_minutes" and result.program is None and watch.seconds < 5


def test_a_winner_that_fails_again_is_refused(archive: Archive) -> None:
    judge = Faulty()

    def confirm(program: Program) -> Evaluation:
        return Faulty(guilty=frozenset({"op_4"})).evaluate(program)

    result = begin(archive, judge, budget=1, source=source(), confirm=confirm)
    assert result.program is not None and result.confirmed
    assert set(json.loads(result.program.text)["given_up"].split(",")) == set(NODES[3:6])


def test_a_resumed_run_repeats_the_steps(archive: Archive) -> None:
    def judge(mark: str) -> Faulty:
        return Faulty(guilty=frozenset({"op_4"}), named=False, mark=mark)

    begin(archive, judge("whole"), budget=3, source=source())
    expected = canonical(archive)
    stopped = judge("stopped")
    first = begin(archive, stopped, budget=3, source=source(), stop_requested=lambda: len(stopped.calls) >= 4)
    assert first.interrupted
    assert not go_on(archive, judge("stopped"), source=source()).interrupted
    assert canonical(archive) == expected


@given(guilty=st.sets(st.integers(0, 20), max_size=3), count=st.integers(1, 20), named=st.booleans())
def test_the_steps_end_with_a_program_that_passes(guilty: set[int], count: int, named: bool) -> None:
    groups = [frozenset({f"a{n}", f"b{n}"}) for n in range(count)]
    broken = {f"b{n}" for n in guilty if n < count}

    def outcome(given_up: str) -> StepOutcome:
        if given_up in (EVERY_OPERATOR, PLAIN_PLAN):
            return StepOutcome(True)
        left = broken - set(given_up.split(","))
        names = next((group for group in groups if group & left), frozenset()) if named else frozenset()
        return StepOutcome(not left, names, "wrong")

    ladder = steps(outcome(""), groups)
    taken, passed = 0, not broken
    try:
        step = next(ladder)
        while not passed:
            taken += 1
            found = outcome(step.given_up)
            passed = found.passed and step.closing
            step = ladder.send(found)
    except StopIteration:
        pass
    assert passed and taken <= 24


@pytest.mark.parametrize("named", [True, False])
def test_a_program_that_is_slow_gives_up_its_products_together(named: bool) -> None:
    """Each takes a share of the time, so that no single one is guilty; what is quick stays."""
    groups = [frozenset({f"linear_{n}", f"gelu_{n}"}) for n in range(9)] + [frozenset({"softmax_1"})]
    first = StepOutcome(False, groups[4] if named else frozenset(), "timeout: 40 s", slow=True)
    ladder = steps(first, groups)
    step = next(ladder)
    if named:
        assert step.given_up == "gelu_4,linear_4"
        step = ladder.send(StepOutcome(False, groups[7], "timeout: 40 s", slow=True))
    assert set(step.given_up.split(",")) == frozenset().union(*groups[:9])
    with pytest.raises(StopIteration):
        ladder.send(StepOutcome(True))


PRODUCT_NODES = ("linear", "relu", "conv2d", "add")
PRODUCTS = "conv2d,linear,relu"


def explain_products(choices: Mapping[str, Any]) -> dict[str, Any]:
    return {"kernels": [{"name": "a", "nodes": ["linear", "relu"]}, {"name": "b", "nodes": ["conv2d"]}]}


def explain_both(choices: Mapping[str, Any]) -> dict[str, Any]:
    return {"kernels": [*explain_products(choices)["kernels"], {"name": "c", "nodes": ["add"]}]}


@pytest.mark.parametrize(
    ("explained", "speedups", "answer", "tried"),
    [
        (explain_both, {"": 0.7, PRODUCTS: 1.2}, PRODUCTS, [PRODUCTS]),
        (explain_both, {"": 0.7, PRODUCTS: 0.6, EVERY_OPERATOR: 1.0}, EVERY_OPERATOR, [PRODUCTS, EVERY_OPERATOR]),
        (explain_both, {"": 0.95, PRODUCTS: 0.6, EVERY_OPERATOR: 0.9}, "", [PRODUCTS, EVERY_OPERATOR]),
        (explain_products, {"": 0.5, EVERY_OPERATOR: 1.0}, EVERY_OPERATOR, [EVERY_OPERATOR]),
        (explain_both, {"": 0.985}, "", []),
        (explain_both, {"": 1.4}, "", []),
    ],
)
def test_no_answer_is_slower_than_eager(
    archive: Archive, explained: Any, speedups: dict[str, float], answer: str, tried: list[str]
) -> None:
    """The forms that leave products, then all operators, to the library are timed, and the fastest is the answer."""
    made = EngineSource(SPACE, write, Fallback(explained, PRODUCT_NODES))
    result = begin(archive, Timed(speedups=speedups), budget=1, source=made)
    assert result.program is not None
    assert json.loads(result.program.text).get("given_up", "") == answer
    trials = show(archive, "latest").trials
    assert [t.notes["given_up"] for t in trials if t.operator == "fallback"] == tried


def test_times_of_a_simulated_gpu_give_nothing_up(archive: Archive) -> None:
    made = EngineSource(SPACE, write, Fallback(explain_both, PRODUCT_NODES))
    judge = Timed(speedups={"": 0.1}, device="gfx942 (simulated)")
    result = begin(archive, judge, budget=1, source=made)
    assert result.program is not None and not json.loads(result.program.text).get("given_up")
    assert not [t for t in show(archive, "latest").trials if t.operator == "fallback"]
