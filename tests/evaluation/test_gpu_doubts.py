"""What a busy machine does to an evaluation on a GPU is no verdict on the program."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.evaluation import Evaluator
from hipwright.evaluation.gpu import task as gpu_task
from hipwright.evaluation.gpu import timing_context
from hipwright.evaluation.gpu.memory import DeviceMemory
from hipwright.evaluation.gpu.program_timing import DOUBTED
from hipwright.evaluation.gpu.task import GpuTask
from hipwright.measure.paired_timing import TimingResult
from hipwright.measure.settings import FULL, LONG, TimingSettings
from hipwright.records import Verdict
from tests.evaluation.test_gpu_task import bench, program

__all__ = ["bench"]
pytestmark = pytest.mark.slow


def test_clocks_that_disagree_cost_the_timing_and_not_the_program(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine's doubt is no verdict: the program is timed again, and else passes without a timing."""
    doubts, honest = [1], GpuTask._pairs
    asked: list[TimingSettings] = []

    def pairs(self: GpuTask, *args: Any) -> TimingResult:
        asked.append(args[-1])
        if len(asked) > doubts[0]:
            return honest(self, *args)
        why = Verdict(status="untrusted", fault="device", stage="measure", message="the clocks of eager disagree")
        return TimingResult(None, why)

    monkeypatch.setattr(GpuTask, "_pairs", pairs)
    once = bench.evaluate(program("row_sum_tree"))
    assert once.passed and once.score_kind == "measured" and asked == [FULL, LONG]
    asked.clear()
    doubts[0] = 99
    never = bench.evaluate(program("row_sum_tree"))
    assert never.passed and never.score is None and asked == [FULL] + [LONG] * (DOUBTED - 1)
    assert "the clocks of eager disagree" in never.targets["cuda"].why_none["timing"]
    rewarded = bench.evaluate(program("row_sum_tree"), gate="fast")
    assert rewarded.status == "untrusted" and rewarded.fault == "device"


def test_a_call_that_is_late_beside_other_tasks_is_judged_again_alone(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, honest, alone = bench.gpus["cuda"], gpu_task.verify_gpu, []

    def late(*args: Any, **more: Any) -> Verdict:
        alone.append(task.gpu.timing_lock.timing)
        if alone[-1]:
            return honest(*args, **more)
        return Verdict(status="timeout", fault="candidate", stage="launch", message="run_many took longer than 10 s")

    monkeypatch.setattr(gpu_task, "verify_gpu", late)
    refused = bench.evaluate(program("row_sum_tree"), timed=False)
    assert refused.status == "timeout" and alone == [False]  # nobody else was there
    alone.clear()
    memory = DeviceMemory(1 << 30)
    monkeypatch.setattr(task._room, "_reservation", memory.reserve(1))
    memory.reserve(1)
    found = bench.evaluate(program("row_sum_tree"), timed=False)
    assert found.passed and alone == [False, True]
    assert "10 s" in found.targets["cuda"].verdict.checks["judged_again"]


def test_a_timing_that_has_the_gpu_alone_measures_ceilings_and_counts_nothing(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks wait meanwhile; ceilings that were measured beside them would be too low."""
    task, alone = bench.gpus["cuda"], dict[str, bool]()

    def watched(name: str) -> None:
        honest = getattr(timing_context, name)

        def call(*args: Any) -> Any:
            alone[name] = task.gpu.timing_lock.timing
            return honest(*args)

        monkeypatch.setattr(timing_context, name, call)

    watched("count_work")
    watched("ceilings_of")
    for known in ("work", "ceilings"):
        task.__dict__.pop(known, None)
    task._known.clear()
    assert bench.evaluate(program("row_sum_tree")).passed
    assert alone == {"count_work": False, "ceilings_of": True}
