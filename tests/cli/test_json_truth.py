"""JSON says what happened: every part that is missing has its reason, and nothing that passed is called rejected."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import EXAMPLES, REPO, hipwright, one_object

from hipwright.api.outcome import not_measured, result_object
from hipwright.evaluation.results import Assessment, Findings, passed, rejected
from hipwright.records import Build, Estimate, Evaluation, Program, TargetResult, Timing, Verdict

PARTS = ("build", "verdict", "estimate", "timing")
CORPUS = REPO / "src/hipwright/audit/corpus"
TASK = CORPUS / "tasks/row_sum.py"
TARGETS = ("gfx942", "cpu", "cuda")


def pieces() -> Iterator[Findings]:
    """Findings with every combination of parts that a GPU and an offline target may have."""
    build = Build(target="x", ok=True)
    estimate = Estimate(target="x", microseconds=1.0, bound="memory", roofline_fraction=0.5)
    for built, judged, estimated, timed, untimed in itertools.product((False, True), repeat=5):
        found = Findings(TARGETS)
        if built:
            found = Findings(TARGETS, builds=type(found.builds)({"gfx942": build}, {(64, False): build}, {}))
        if judged:
            found = found.with_verdict(Verdict(status="pass", workloads=("given",)), "cpu", "cuda")
        if untimed:
            found = found.without_timing("cuda", "timing was not asked for")
        timings = {"cuda": Timing(device="d", architecture="a", median_ms=1.0)} if timed else {}
        estimates = {"gfx942": estimate} if estimated else {}
        yield Findings(
            TARGETS,
            builds=found.builds,
            verdicts=found.verdicts,
            timings=timings,
            untimed=found.untimed,
            estimates=estimates,
        )


def true(result: dict[str, Any]) -> None:
    """Asserts what holds of every result object."""
    text = json.dumps(result, allow_nan=False)
    if result["status"] == "pass":
        assert "rejected" not in json.dumps([t["why_none"] for t in result["targets"].values()]), text
        assert not any("was not judged" in why for t in result["targets"].values() for why in t["why_none"].values())
    else:
        assert any("ended early" in line or "no program" in line for line in result["not_measured"]), text
    for name, target in result["targets"].items():
        missing = {part for part in PARTS if target[part] is None}
        assert missing == set(target["why_none"]), f"{name}: {target['why_none']}"
        assert all(target["why_none"].values())
        for case in (target["verdict"] or {}).get("skipped", {}):
            assert any(case in line for line in result["not_measured"]), f"{case} is not said to be left out"
    assert result["score"] is None or result["score_unit"] == "microseconds"


def test_a_result_of_any_stages_says_why_each_part_is_missing() -> None:
    program = Program(text="x")
    verdicts = [
        Verdict(status="wrong_value", fault="candidate"),
        Verdict(status="unscorable", fault="device", stage="launch"),
        Verdict(status="degenerate", fault="task", stage="lint"),
        Verdict(status="parse_error", fault="candidate", stage="parse"),
    ]
    for found in pieces():
        ends = [passed("t", program, found, Assessment(1.0, {}))]
        ends += [rejected("t", program, end, found, where) for end in verdicts for where in ("", "cuda")]
        for evaluation in ends:
            true(result_object(evaluation, TARGETS, not_measured=not_measured(TARGETS, evaluation)))


def test_a_machines_fault_rejects_nobody() -> None:
    end = Verdict(status="unscorable", fault="device", stage="launch", message="the GPU fell off")
    found = rejected("t", Program(text="x"), end, Findings(TARGETS))
    whys = [why for result in found.targets.values() for why in result.why_none.values()]
    assert whys and not any("rejected" in why for why in whys)


@pytest.mark.parametrize("evaluation", [None, Evaluation(task="t", program="p", status="pass")])
def test_targets_without_a_result_say_so(evaluation: Evaluation | None) -> None:
    result = result_object(evaluation, ("cpu", "gfx942"), not_measured=["no program"])
    true(result)
    assert set(result) >= {"status", "message", "score", "score_kind", "library", "environment"}


def test_whatever_was_skipped_is_named() -> None:
    skipped = {
        "given": "9 elements are too many for the cpu target",
        "3x5/large": "the reference overflows",
        "3x5/tiny": "the reference overflows",
    }
    checks = {"gate": "fast", "wave32": "fail: wrong_value: 3 of 9"}
    verdict = Verdict(status="pass", workloads=("3x5",), skipped=skipped, checks=checks)
    results = {
        "cpu": TargetResult(target="cpu", verdict=verdict),
        "cuda": TargetResult(target="cuda", verdict=verdict, why_none={"timing": "timing was not asked for"}),
    }
    lines = not_measured(("cpu", "cuda"), Evaluation(task="t", program="p", status="pass", targets=results))
    assert "given, the task's own shape, was not verified: 9 elements are too many for the cpu target" in lines
    assert "no evidence on cpu from 3x5/large, 3x5/tiny: the reference overflows" in lines
    assert "no timing for cuda: timing was not asked for" in lines
    assert sum("waves of 32" in line for line in lines) == 2 and any("fast gate" in line for line in lines)


# ---------------------------------------------------------------- the commands


EVALUATIONS = {
    "a pass": (TASK, CORPUS / "program/honest/row_sum_tree.py", "pass"),
    "a rejection": (TASK, CORPUS / "program/broken/tail_read.py", None),
    "no program": (TASK, EXAMPLES / "README.md", "parse_error"),
    "a ModelNew file": (TASK, CORPUS / "modelnew/honest/pure_torch.py", None),
}


@pytest.mark.parametrize("case", EVALUATIONS)
def test_eval(case: str, tmp_path: Path) -> None:
    task, program, status = EVALUATIONS[case]
    done = hipwright(tmp_path / "home", "eval", task, program, "--target", "cpu", "--target", "gfx942", "--json")
    result = one_object(done.stdout)
    assert (done.returncode == 0) == (result["status"] == "pass"), done.stderr
    assert status in (None, result["status"])
    assert list(result["targets"]) == ["cpu", "gfx942"]
    true(result)


def test_commands_on_runs(tmp_path: Path) -> None:
    home = tmp_path / "home"
    arguments = ("--target", "cpu", "--target", "gfx942", "--budget", 1, "--json")
    done = hipwright(home, "optimize", EXAMPLES / "bias_gelu.py", *arguments)
    result = one_object(done.stdout)
    assert result["status"] == "pass" and result["confirmed"], done.stderr
    true(result)
    for command in (("runs",), ("show", "latest"), ("compare", "latest", "latest"), ("export", "latest")):
        done = hipwright(home, *command, "--json")
        found = one_object(done.stdout)
        assert done.returncode == 0 and "NaN" not in done.stdout and "Infinity" not in done.stdout
        if command[0] == "show":
            assert found["not_measured"] == result["not_measured"]
            whys = [t.get("why_none", {}) for t in found["best"]["targets"].values()]
            assert "rejected" not in json.dumps(whys)
    listed = one_object(hipwright(home, "runs", "--json").stdout)["runs"][0]
    assert listed["score_kind"] == "estimate" and listed["confirmed"] is True
