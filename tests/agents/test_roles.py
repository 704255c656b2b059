"""Correctness verifier and hardware evaluator: what they say of an evaluation, and that a figure keeps its machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from writer_tools import evaluator, failed, passed, program

from hipwright.agents.evaluator import HardwareEvaluator
from hipwright.agents.evaluator import read as measured
from hipwright.agents.verifier import CorrectnessVerifier
from hipwright.agents.verifier import read as checked
from hipwright.records import Build, Evaluation, Program, TargetResult, Timing, Verdict, Versus

P = program("a")
CORPUS = Path("src/hipwright/audit/corpus/program")


def timed(target: str = "cuda") -> Evaluation:
    versus = Versus(
        baseline="eager", speedup=2.0, interval=(1.9, 2.1), samples_ms=(0.01,), baseline_ms=(0.02,), pairs=1
    )
    timing = Timing(device="NVIDIA H200", architecture="sm_90", median_ms=0.0125, versus={"eager": versus})
    verdict = Verdict(status="pass", worst_error=0.4, workloads=("given", "derived"))
    result = TargetResult(target=target, verdict=verdict, timing=timing)
    return replace(
        passed(P, 7.0), targets={target: result, **passed(P, 7.0).targets}, score_kind="measured", score=12.5
    )


def test_only_a_compared_target_counts_as_proof() -> None:
    told = checked(timed())
    assert told.passed and told.proven == ("cuda",) and "gfx942" in told.compiled
    assert told.worst_error == pytest.approx(0.4) and told.workloads == ("given", "derived")
    built = Evaluation(
        task="t",
        program=P.key,
        status="pass",
        targets={"gfx942": TargetResult(target="gfx942", build=Build(target="gfx942", ok=True))},
    )
    assert checked(built).status == "pass" and not checked(built).passed, "compiled is not verified"


def test_a_rejection_names_its_place() -> None:
    told = checked(failed(P, "out_of_bounds", "reads x[640] of 640", stage="launch"), "fast")
    assert (told.status, told.fault, told.stage, told.where, told.gate) == (
        "out_of_bounds",
        "candidate",
        "launch",
        "cpu",
        "fast",
    )
    assert not told.passed and told.proven == () and "640" in told.message


def test_a_figure_keeps_its_machine_and_its_kind() -> None:
    told = measured(timed())
    cuda, cpu, offline = told.figures
    assert (cuda.kind, cuda.device, cuda.baseline) == ("measured", "HIP on NVIDIA H200", "eager")
    assert (cuda.microseconds, cuda.speedup, cuda.interval) == (12.5, 2.0, (1.9, 2.1))
    assert (cpu.kind, cpu.microseconds) == ("none", None) and cpu.why_none
    assert (offline.kind, offline.device, offline.microseconds) == ("estimate", "", 7.0)
    assert told.of("measured") == ("cuda",) and told.of("estimate") == ("gfx942",) and told.score == 12.5


def test_what_did_not_pass_has_no_figure() -> None:
    told = measured(failed(P))
    assert not told.passed and [f.kind for f in told.figures] == ["none"]
    assert "did not pass" in told.figures[0].why_none


@pytest.mark.slow
def test_both_roles_on_real_programs() -> None:
    from hipwright.audit.cases import select

    right = next(c for c in select(["row_sum_tree"]) if c.kind == "honest")
    wrong = next(c for c in select(["returns_input"]) if c.lane == "program")
    with evaluator(right.task_path) as judge:
        verifier, hardware = CorrectnessVerifier(judge, "fast"), HardwareEvaluator(judge)
        told = verifier.check(Program(text=right.text))
        assert told.passed and told.proven == ("cpu",) and told.gate == "fast" and told.workloads
        figures = hardware.measure(Program(text=right.text)).figures
        assert [(f.target, f.kind) for f in figures] == [("cpu", "none")] and "GPU" in figures[0].why_none
        refused = verifier.check(Program(text=wrong.text))
        assert not refused.passed and refused.fault == "candidate" and refused.message
