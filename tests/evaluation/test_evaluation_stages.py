"""The runner of an evaluation's stages: what ends a candidate, which faults are retried, which time counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hipwright.errors import BadInput, CandidateError, DeviceError, HipwrightError, ToolchainError, WorkerError
from hipwright.evaluation.faults import as_error, failed, failed_by_machine, retried
from hipwright.evaluation.results import Assessment, Findings
from hipwright.evaluation.stages import EvaluationStage, EvaluationState, advance, conclude
from hipwright.records import Evaluation, Program, Verdict

TASK = "task"


def begun() -> EvaluationState:
    return EvaluationState(Program(text="text"), Findings(("cpu", "cuda", "gfx942")))


def verified(target: str, verdict: Verdict, ran: list[str]) -> EvaluationStage[Verdict]:
    def work(state: EvaluationState) -> Verdict:
        ran.append(target)
        return verdict

    def keep(state: EvaluationState, found: Verdict) -> EvaluationState:
        if not found.passed:
            return state.ended(found, target)
        return replace(state, found=state.found.with_verdict(found, target))

    return EvaluationStage("verify", work, keep)


def raising(error: Exception) -> EvaluationStage[Any]:
    def work(state: EvaluationState) -> Any:
        raise error

    return EvaluationStage("verify", work, lambda state, _: state)


def test_the_first_rejection_ends_the_candidate_and_keeps_what_was_found() -> None:
    ran: list[str] = []
    right, wrong = Verdict(status="pass"), Verdict(status="wrong_value", fault="candidate", message="no")
    state = advance(begun(), verified("cpu", right, ran), verified("cuda", wrong, ran), verified("gfx942", right, ran))
    found = conclude(state, TASK)
    assert ran == ["cpu", "cuda"]
    assert (found.status, found.fault, found.message, found.task) == ("wrong_value", "candidate", "no", TASK)
    assert found.targets["cpu"].verdict == right and found.targets["cuda"].verdict == wrong
    assert found.targets["gfx942"].verdict is None


@pytest.mark.parametrize(
    ("error", "status", "fault"),
    [
        (CandidateError("it writes outside", status="out_of_bounds"), "out_of_bounds", "candidate"),
        (DeviceError("the device is gone"), "unscorable", "device"),
        (BadInput("no such knob"), "unscorable", "task"),
    ],
)
def test_an_error_ends_the_candidate_with_its_own_verdict(error: HipwrightError, status: str, fault: str) -> None:
    state = advance(begun(), raising(error), raising(AssertionError("never run")))
    found = conclude(state, TASK)
    assert (found.status, found.fault) == (status, fault)
    assert failed_by_machine(found) == (fault == "device")
    assert all(found.targets[name].verdict == error.verdict() for name in ("cpu", "cuda"))


def test_an_error_of_our_own_is_no_verdict() -> None:
    with pytest.raises(KeyError):
        advance(begun(), raising(KeyError("a bug")))


def test_waiting_for_a_turn_is_no_time_of_the_stage() -> None:
    def late(work: Callable[[], Any]) -> Any:
        time.sleep(0.2)
        return work()

    stage = EvaluationStage("time", lambda state: time.sleep(0.05), lambda state, _: state)
    state = advance(begun(), stage, stage, run=late)
    assert 0.1 <= state.seconds < 0.25


def test_what_passed_is_concluded_with_its_assessment() -> None:
    assessment = Assessment(0.5, {"mm": 0.5}, checks={"traced_shapes": {}})
    state = advance(begun(), verified("cpu", Verdict(status="pass"), []))
    found = conclude(replace(state, assessment=assessment, found=state.found.assessed(assessment)), TASK)
    assert found.passed and found.coverage == 0.5 and found.library == {"mm": 0.5}
    verdict = found.targets["cpu"].verdict
    assert verdict is not None and verdict.checks == {"traced_shapes": {}}


def evaluation(fault: Any) -> Evaluation:
    return Evaluation(task=TASK, program="p", status="pass" if fault is None else "unscorable", fault=fault)


@pytest.mark.parametrize(
    ("faults", "judged"),
    [
        (["device", None], 2),
        (["service", "toolchain", "device", None], 3),
        (["candidate"], 1),
        (["task"], 1),
        ([None], 1),
    ],
)
def test_only_faults_of_the_machine_are_retried(faults: list[Any], judged: int) -> None:
    met = iter(faults)
    found = retried(lambda: evaluation(next(met)), 3, lambda: True)
    assert faults[judged - 1] == found.fault and len(faults) - len(list(met)) == judged


def test_who_gives_up_is_not_tried_again() -> None:
    met = iter(["device", None])
    assert retried(lambda: evaluation(next(met)), 3, lambda: False).fault == "device"


def test_a_fault_is_the_error_it_was_and_an_unknown_error_is_the_service() -> None:
    assert [type(as_error(evaluation(fault))) for fault in ("toolchain", "device", "service")] == [
        ToolchainError,
        DeviceError,
        WorkerError,
    ]
    assert failed(TASK, "p", DeviceError("gone")).fault == "device"
    try:
        raise KeyError("a bug")
    except KeyError as error:
        found = failed(TASK, "p", error)
    assert (found.status, found.fault) == (
        "unscorable",
        "service",
    ) and "KeyError at test_evaluation_stages.py" in found.message
