"""The environment: reading completions, outcomes, evidence and rewards."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hipwright.llm.answers.repair import UnusableAnswer
from hipwright.records import Build, Evaluation, Program, TargetResult, Timing, Verdict, Versus
from hipwright.train.environment import Environment, outcome, read
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.records import AnswerOutcome, TrainingProblem, Turn
from hipwright.train.rewards import REWARDS, reward
from tests.train.judging.judged import completion, problem, text, uncompilable

SEED = 91_827_364_55
TASK = TrainingProblem(name="row_sum", source="import torch")
PROGRAM = Program(text=text("row_sum_wave"))


class ScriptedJudge:
    """A judge with given evaluations by program text, which answers from threads in any order."""

    device, clock = "a GPU", "device"

    def __init__(self, verdicts: dict[str, Evaluation]) -> None:
        self.verdicts = verdicts
        self.asked: list[str] = []
        self._pool = ThreadPoolExecutor(4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        pass

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        def late() -> Evaluation:
            time.sleep(random.random() / 100)
            return self.verdicts[program.text]

        self.asked.append(program.text)
        return self._pool.submit(late)


def evaluation(status: str = "pass", fault: str | None = None, **more: Any) -> Evaluation:
    return Evaluation(task="t", program=PROGRAM.key, status=status, fault=fault, **more)  # type: ignore[arg-type]


def timed(low: float, high: float, base: float = 0.04, **more: Any) -> Evaluation:
    """The evaluation of a correct program on a GPU."""
    speedup = (low * high) ** 0.5
    versus = Versus(
        baseline="eager",
        speedup=speedup,
        interval=(low, high),
        samples_ms=(base / speedup,),
        baseline_ms=(base, base, 9.0),
        pairs=3,
    )
    timing = Timing(
        device="NVIDIA H200",
        architecture="sm_90",
        median_ms=base / speedup,
        versus={"eager": versus},
        floor_ms=0.01,
        roofline_fraction=0.5,
    )
    result = TargetResult(target="cuda", build=Build(target="cuda", ok=True), timing=timing)
    return evaluation(targets={"cuda": result}, coverage=1.0, features={"compute_level": 0.25}, **more)


def rejected(status: str, stage: str = "verify", ok: bool = True, fault: str = "candidate", **more: Any) -> Evaluation:
    verdict = Verdict(status=status, fault=fault, stage=stage, message=f"it is {status}", **more)  # type: ignore[arg-type]
    result = TargetResult(target="cuda", build=Build(target="cuda", ok=ok), verdict=verdict)
    return evaluation(status, fault, message=verdict.message, targets={"cuda": result})


# ---------------------------------------------------------------- evaluation -> outcome


def test_a_timed_program() -> None:
    told = outcome(timed(2.0, 2.5), PROGRAM)
    assert (told.clock, told.device, told.baseline) == ("device", "NVIDIA H200", "eager")
    assert (told.low, told.high, told.base_ms, told.floor_ms) == (2.0, 2.5, 0.04, 0.01), "the baseline is a median"
    assert told.compiled and told.correct and told.scorable and told.program == PROGRAM.key
    assert told.metrics == {"compute_level": 0.25, "roofline_fraction": 0.5}


def test_the_speedup_is_against_the_strongest_baseline() -> None:
    one = timed(2.0, 2.5)
    timing = one.targets["cuda"].timing
    assert timing is not None
    stronger = replace(timing.versus["eager"], baseline="compile", speedup=0.9, interval=(0.8, 1.0))
    timing = replace(timing, versus={**timing.versus, "compile": stronger})
    told = outcome(replace(one, targets={"cuda": replace(one.targets["cuda"], timing=timing)}), PROGRAM)
    assert (told.baseline, told.low) == ("compile", 0.8)


def test_a_right_program_without_a_timing() -> None:
    told = outcome(evaluation(coverage=0.5), PROGRAM, clock="")
    assert told.correct and told.clock == "" and told.speedup is None
    assert [name for name in REWARDS if REWARDS[name]([told])[0].reward is None] == []


@pytest.mark.parametrize(
    ("found", "compiled", "hack", "pays"),
    [
        (rejected("parse_error", "parse"), False, False, 0.0),
        (rejected("compile_error", "build", ok=False), False, False, 0.0),
        (rejected("wrong_value"), True, False, 0.0),
        (rejected("timeout"), True, False, 0.0),
        (rejected("hack"), True, True, -0.5),
        (rejected("impossible", "measure"), True, True, -0.5),
        (rejected("untrusted", "measure"), True, False, 0.0),
        (rejected("untrusted", "measure", fault="device"), True, False, None),
        (rejected("unscorable", fault="task"), True, False, None),
        (rejected("unscorable", fault="service"), True, False, None),
        (rejected("impossible", fault="device"), True, False, None),
    ],
)
def test_outcomes_that_did_not_pass(found: Evaluation, compiled: bool, hack: bool, pays: float | None) -> None:
    told = outcome(found, PROGRAM)
    assert (told.compiled, told.hack, told.correct, told.speedup) == (compiled, hack, False, None)
    scored = REWARDS["hipwright"]([told])[0]
    assert scored.reward == pays and (scored.reward is None) == (not told.scorable)


def test_a_fault_of_the_machine_gives_no_evidence() -> None:
    told = outcome(rejected("unscorable", fault="service"), PROGRAM)
    assert "it is unscorable" not in told.evidence and "not judged" in told.evidence


# ---------------------------------------------------------------- completion -> program


def test_an_answer_without_a_program_gets_a_request_for_one(judge: ScriptedJudge) -> None:
    with Environment(judge, REWARDS["milestones"]) as environment:  # type: ignore[arg-type]
        found = environment.score(TASK, "I would use a warp reduction here.")
    assert found.outcome.status == "parse_error" and found.reward == -1.0
    assert "```python" in found.outcome.evidence and judge.asked == []


@pytest.fixture
def judge() -> ScriptedJudge:
    return ScriptedJudge({})


@given(st.text(max_size=400))
@settings(max_examples=60)
def test_reading_never_raises(said: str) -> None:
    found = read(said, TASK)
    assert isinstance(found, (UnusableAnswer, Program))


@pytest.mark.parametrize("said", ["", "```python\n" * 2000, "\x00" * 99, "(" * 5000, "HIP = r'''" + "{" * 10_000])
def test_hostile_text(said: str, judge: ScriptedJudge) -> None:
    environment = Environment(judge, REWARDS["hipwright"])  # type: ignore[arg-type]
    assert environment.score(TASK, said).reward == 0.0


# ---------------------------------------------------------------- groups and turns


def plain(said: str, task: TrainingProblem) -> Program | UnusableAnswer:
    return Program(text=said) if said else UnusableAnswer(kind="no_code", message="nothing", repair="write one")


VERDICTS = {
    "fast": timed(2.0, 2.5),
    "slow": timed(0.5, 0.6),
    "wrong": rejected("wrong_value"),
    "hack": rejected("hack"),
    "lost": rejected("unscorable", fault="device"),
}


@given(st.lists(st.sampled_from([*VERDICTS, ""]), min_size=1, max_size=12))
@settings(max_examples=30)
def test_a_group_keeps_its_order_and_is_deterministic(said: list[str]) -> None:
    with Environment(ScriptedJudge(VERDICTS), REWARDS["hipwright"], plain) as environment:  # type: ignore[arg-type]
        found = environment.score_group(TASK, said)
        again = environment.score_group(TASK, said)
    status = {"fast": "pass", "slow": "pass", "wrong": "wrong_value", "hack": "hack", "lost": "unscorable"}
    assert [one.outcome.status for one in found] == [status.get(name, "parse_error") for name in said]
    assert found == again
    assert [one.reward is None for one in found] == [name == "lost" for name in said]


def test_a_repeated_answer_is_noted() -> None:
    with Environment(ScriptedJudge(VERDICTS), REWARDS["hipwright"], plain) as environment:  # type: ignore[arg-type]
        first = environment.score(TASK, "wrong")
        history = [Turn(completion="wrong", outcome=first.outcome)]
        again, other = environment.score_group(TASK, ["wrong", "fast"], [history, history])
    assert "answer 1 again" in again.outcome.evidence and "answer 1 again" not in other.outcome.evidence
    assert again.reward == first.reward == 0.0


def test_a_hack_in_an_earlier_turn_is_noted() -> None:
    with Environment(ScriptedJudge(VERDICTS), REWARDS["hipwright"], plain) as environment:  # type: ignore[arg-type]
        hack = environment.score(TASK, "hack")
        assert hack.reward == -0.5
        after = environment.score(TASK, "wrong", [Turn(completion="hack", outcome=hack.outcome)])
    assert "way around the task" in after.outcome.evidence


def test_submitting_does_not_wait_for_other_programs() -> None:
    """`submit` returns at once."""
    released = threading.Event()

    class Slow(ScriptedJudge):
        def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
            if program.text != "slow":
                return super().submit(problem, program)
            return self._pool.submit(lambda: released.wait(5) and VERDICTS["slow"])

    with Environment(Slow(VERDICTS), REWARDS["source"], plain) as environment:  # type: ignore[arg-type]
        slow, fast = environment.submit(TASK, "slow"), environment.submit(TASK, "fast")
        assert fast.result(timeout=5).correct and not slow.done()
        released.set()
        assert slow.result(timeout=5).correct


def test_a_judge_without_timing_needs_no_pause(judge: ScriptedJudge) -> None:
    with Environment(judge, REWARDS["source"]).timing_paused():  # type: ignore[arg-type]
        pass


def test_an_error_of_the_judge_is_raised() -> None:
    with Environment(ScriptedJudge({}), REWARDS["source"], plain) as environment, pytest.raises(KeyError):  # type: ignore[arg-type]
        environment.score(TASK, "unknown")


# ---------------------------------------------------------------- with real parts


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    judge = LocalJudge(("cpu", "gfx942"), seed=SEED, cache=tmp_path_factory.mktemp("builds"))
    with Environment(judge, reward("hipwright")) as made:
        yield made


def modelnew(said: str, task: TrainingProblem) -> Program | UnusableAnswer:
    """A reader that also accepts ModelNew files with host code."""
    return Program(form="modelnew", text=said) if "class ModelNew" in said else read(said, task)


@pytest.mark.slow
def test_rewards_of_real_programs_are_in_the_right_order(real: Environment) -> None:
    """own kernel > library and a copy > wrong = no program = not compiled > hack."""
    host = Environment(real.judge, real.reward, modelnew)
    said = [
        completion("softmax_online"),
        completion("softmax_block"),
        completion("library_then_copy", "hostile"),
        completion("uninitialised", "broken"),
        uncompilable("softmax_online"),
        "sorry",
        "",
        text("exit_zero", "hostile", "modelnew"),
    ]
    found = host.score_group(problem("softmax"), said[:3])
    own, block, lazy = found
    assert own.outcome.correct and block.outcome.correct and lazy.outcome.correct
    assert own.outcome.coverage == 1.0 and lazy.outcome.coverage < 0.1
    assert lazy.parts["speed"] <= 0.0 and lazy.reward is not None and own.reward is not None
    assert own.reward >= lazy.reward > 0
    rest = host.score_group(problem("softmax"), said[3:])
    assert [one.outcome.status for one in rest] == [
        "wrong_value",
        "compile_error",
        "parse_error",
        "parse_error",
        "hack",
    ]
    assert [one.outcome.compiled for one in rest[:4]] == [True, False, False, False]
    assert [one.reward for one in rest] == [0.0, 0.0, 0.0, 0.0, -0.5]


@pytest.mark.slow
def test_evidence_holds_no_secret(real: Environment) -> None:
    task, history = problem("row_sum"), list[Turn]()
    for name, kind in (("tail_read", "broken"), ("every_other_row", "hostile"), ("only_the_given_shape", "hostile")):
        found = real.score(task, completion(name, kind), history).outcome
        assert not found.correct and found.scorable
        history.append(Turn(completion=completion(name, kind), outcome=found))
        told = found.evidence
        assert found.status in told and len(told) < 2500
        assert str(SEED) not in told and "seed" not in told.lower()
        assert len(re.findall(r"expected", told)) <= 1, told
        assert str(Path.home()) not in told and "/tmp/" not in told
    assert "line" in history[0].outcome.evidence


@pytest.mark.slow
def test_equal_arguments_give_equal_outcomes(real: Environment) -> None:
    said = [completion("row_sum_tree"), completion("tail_read", "broken")]
    first = real.score_group(problem("row_sum"), said)
    second = real.score_group(problem("row_sum"), said)
    assert first == second and isinstance(first[0].outcome, AnswerOutcome)
