"""The comparison of a run's winner with its start: what it says for each outcome."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.api.result import Result, written
from hipwright.api.start.comparison import StartComparison, start_comparison
from hipwright.archive import RunDetail, RunSummary, TrialDetail
from hipwright.records import Evaluation, Program, Run, Task, Workload
from hipwright.search import SearchResult

SETTING = {"name": "k.cu", "form": "cuda", "program": "s", "notes": ["line 3: a mask"]}
TASK = Task(name="t", source="", workloads=(Workload(name="given"),))


def trial(number: int, operator: str, **known: Any) -> TrialDetail:
    return TrialDetail(number=number, round=0, operator=operator, program="se"[number], **known)


def detail(*trials: TrialDetail, best: int = -1, setting: dict[str, Any] | None = SETTING) -> RunDetail:
    run = Run(id="r", task=TASK.key, targets=("cpu",), budget=2, policy="islands", seed=0, settings={"start": setting})
    summary = RunSummary(
        id="r", task="t", status="finished", policy="islands", seed=0, budget=2, evaluations=2, best_number=best
    )
    return RunDetail(summary=summary, run=run, trials=trials)


def timed(number: int, operator: str, score: float | None, **more: Any) -> TrialDetail:
    return trial(number, operator, status="pass", score=score, score_kind="estimate" if score else "none", **more)


OWN = {"notes": {"author": "start"}}


@pytest.mark.parametrize(
    ("trials", "best", "speedup", "answer", "says"),
    [
        (
            (timed(0, "start", 30.0, **OWN), timed(1, "default", 10.0)),
            1,
            3.0,
            False,
            "the winner is 3.00 times as fast",
        ),
        (
            (timed(0, "start", 10.0, **OWN), timed(1, "default", 30.0)),
            0,
            1.0,
            True,
            "(ESTIMATE), and is the answer",
        ),
        ((timed(0, "start", 30.0, **OWN), timed(1, "mutate", 20.0, **OWN)), 1, 1.5, True, "with other knobs, is 1.50"),
        ((timed(0, "start", None, **OWN), timed(1, "default", None)), 1, None, False, "no time compares"),
        (
            (trial(0, "start", status="wrong_value", message="off"), timed(1, "default", 1.0)),
            1,
            None,
            False,
            "wrong_value: off",
        ),
        ((trial(0, "start"),), -1, None, False, "was not judged: the search ended before"),
        ((), -1, None, False, "was not judged"),
    ],
)
def test_each_outcome_in_figures_and_a_sentence(
    trials: tuple[TrialDetail, ...], best: int, speedup: float | None, answer: bool, says: str
) -> None:
    found = start_comparison(detail(*trials, best=best))
    assert found is not None and (found.speedup, found.answer) == (speedup, answer)
    assert says in found.sentence and found.sentence.startswith("the start k.cu (CUDA source) ")
    assert StartComparison.from_dict(found.to_dict()) == found


def test_a_text_that_no_judge_saw_says_why_and_a_run_without_a_start_has_none() -> None:
    setting = {"name": "k.py", "form": "triton", "program": "", "notes": [], "text": "x", "why": "no host code"}
    found = start_comparison(detail(setting=setting))
    assert found is not None and found.sentence == "the start k.py (a Triton kernel) was not judged: no host code"
    assert start_comparison(detail(setting=None)) is None


def test_report_and_json_hold_the_comparison() -> None:
    evaluation = Evaluation(task=TASK.key, program="e", status="pass", score=10.0, score_kind="estimate")
    known = detail(timed(0, "start", 30.0, **OWN), timed(1, "default", 10.0), best=1)
    program = Program(text="HIP = r'''\n'''\n\n\ndef forward(self, x):\n    return x\n")
    search = SearchResult(run="r", reason="budget", program=program, evaluation=evaluation, number=1, evaluations=2)
    result = Result(path="t.py", task=TASK, search=search, detail=known)
    assert result.summary()["start"]["speedup"] == 3.0
    assert "The start k.cu (CUDA source) is verified, 30 µs (ESTIMATE); the winner is 3.00 times" in result.report()
    assert "line 3: a mask" in result.report()


def test_a_start_in_the_model_new_form_that_wins_is_written_as_it_is() -> None:
    program = Program(form="modelnew", text="class ModelNew: ...\n")
    evaluation = Evaluation(task=TASK.key, program=program.key, status="pass")
    assert written(program, evaluation) == program.text
    search = SearchResult(run="r", reason="budget", program=program, evaluation=evaluation, number=0, evaluations=1)
    result = Result(path="t.py", task=TASK, search=search, detail=detail(timed(0, "start", None, **OWN), best=0))
    assert result._program_files(lambda *_: None) == {"model_new.py": program.text}
