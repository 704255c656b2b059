"""A task on a GPU, from build to timing, with the CPU in place of the GPU: the same processes, messages and rules.

The speeds mean nothing; the tests check that the methods work together and that faults are attributed correctly.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hipwright.evaluation import Evaluator, score
from hipwright.evaluation.gpu.baselines import Baselines
from hipwright.evaluation.gpu.context import GpuContext
from hipwright.evaluation.gpu.task import GpuTask
from hipwright.evaluation.score import BatchScorer
from hipwright.evaluation.stages import EvaluationState
from hipwright.held import HeldFrom, held
from hipwright.measure.paired_timing import TimingResult
from hipwright.program import parse
from hipwright.records import Build, Program
from hipwright.sandbox import Zygote
from hipwright.targets import CUDA
from hipwright.task import TaskHandle, open_task
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import GPU_WORKER, WorkerConnection
from hipwright.verify.gpu.hosts.held_reference import HeldReference
from hipwright.verify.gpu.reference import DeviceReference, open_reference
from tests import warm

CORPUS = Path(__file__).parents[2] / "src/hipwright/audit/corpus"
pytestmark = pytest.mark.slow


class Processor(GpuContext):
    """The cpu target's kernels and torch on the CPU, behind a GPU's interface."""

    def build(self, hip: str, defines: dict[str, int]) -> Build:
        return cpu.build(hip, defines, wave=64, checked=False, cache=self.cache)

    def candidates(self, zygote: Zygote | None = None, profile: Any = "gpu") -> CandidateWorker:
        return CandidateWorker(zygote or self.workers, "cpu", "cpu", self.cache)

    def reference(self, handle: TaskHandle, share: Any = lambda: 0) -> DeviceReference:
        return open_reference(handle, self.hosts, "cpu", share=share)


@pytest.fixture(scope="module")
def bench() -> Iterator[Evaluator]:
    cache = warm.builds()
    with (
        warm.host() as host,
        Zygote(("torch", "hipwright.task.device.server"), name="device host") as hosts,
        Zygote(("torch", GPU_WORKER.partition(":")[0]), ro=(cache.folder,), name="worker") as workers,
        warm.candidates() as candidates,
        open_task(CORPUS / "tasks/row_sum.py", host) as handle,
    ):
        gpu = Processor(CUDA, 0, "sm_90", cache, None, hosts, workers)  # type: ignore[arg-type]
        with GpuTask(gpu, handle) as task:
            yield Evaluator(handle, Oracle(handle, seed=3), candidates, cache, ("cuda",), gpus={"cuda": task})


def program(name: str, kind: str = "honest") -> Program:
    return Program(text=(CORPUS / "program" / kind / f"{name}.py").read_text())


def test_a_program_is_built_verified_and_timed(bench: Evaluator) -> None:
    found = bench.evaluate(program("row_sum_tree"))
    assert found.passed, found.message
    result = found.targets["cuda"]
    assert result.build is not None and result.verdict is not None and result.timing is not None
    assert "eager" in result.timing.versus and result.timing.policy == "stream"
    assert 0 < result.timing.versus["eager"].interval[0] <= result.timing.versus["eager"].interval[1]
    assert result.timing.median_ms > 0 and found.score_kind == "measured" and found.coverage == 1.0
    assert result.verdict.checks["noop_right"] is False


def test_programs_are_timed_against_the_baselines_that_were_asked_for(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = bench.gpus["cuda"].gpu
    monkeypatch.setattr(gpu, "baselines", ("eager",))
    with GpuTask(gpu, bench.handle) as task:
        assert [side.name for side in task._measured("full").baselines.sides] == ["eager"]


def test_a_wrong_program_is_never_timed(bench: Evaluator) -> None:
    found = bench.evaluate(program("tail_read", "broken"))
    assert found.fault == "candidate" and not found.passed
    assert found.targets["cuda"].timing is None and "timing" in found.targets["cuda"].why_none


def test_a_program_that_breaks_its_process_breaks_no_neighbour(bench: Evaluator) -> None:
    hostile, honest = program("endless", "broken"), program("row_sum_wave")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda one: bench.evaluate(one, timed=False), [honest, hostile, honest, hostile, honest]))
    assert [one.status for one in found] == ["pass", "timeout", "pass", "timeout", "pass"]


def test_timing_is_alone(bench: Evaluator) -> None:
    """While one program is timed, no other is verified on the same GPU."""
    gpu = bench.gpus["cuda"].gpu
    inside = threading.Event()
    with ThreadPoolExecutor(1) as pool, gpu.timing_lock.exclusive():
        later = pool.submit(lambda: (bench.evaluate(program("row_sum_wave"), timed=False), inside.set()))
        assert not inside.wait(1.0)
    assert later.result()[0].passed


def test_a_timing_does_not_wait_for_a_whole_verification(bench: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, call, ended = bench.gpus["cuda"].gpu.timing_lock, WorkerConnection.call, threading.Event()
    monkeypatch.setattr(bench.gpus["cuda"].worker, "give_way", lock.give_way)
    calls: list[str] = []

    def slow(self: WorkerConnection, method: str, *given: Any, **named: Any) -> Any:
        calls.append(method)
        time.sleep(0.1)
        return call(self, method, *given, **named)

    monkeypatch.setattr(WorkerConnection, "call", slow)
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(lambda: (bench.evaluate(program("row_sum_wave"), timed=False), ended.set()))
        until = time.monotonic() + 60
        while not calls and time.monotonic() < until:
            time.sleep(0.01)
        with lock.exclusive():
            assert not ended.is_set()
            known = len(calls)
            time.sleep(0.5)
            assert len(calls) <= known + 1  # one was about to begin
        assert later.result()[0].passed and len(calls) > known + 3


def test_work_that_gives_way_keeps_no_thread_from_the_processes(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timing that goes first waits for the shared work of other threads, which may open or ask a task's processes."""
    task, own, gave, stuck = bench.gpus["cuda"], threading.local(), [0], list[str]()

    def others() -> None:
        own.other = True
        task.worker.open()
        task.reference.ask("describe")

    def give_way() -> None:
        if getattr(own, "other", False) or stuck:
            return
        gave[0] += 1
        thread = threading.Thread(target=others, daemon=True)
        thread.start()
        thread.join(20.0)
        if thread.is_alive():
            stuck.append("".join(traceback.format_stack(limit=8)))

    for process in (task.worker, task.reference):
        monkeypatch.setattr(process, "give_way", give_way)
    found = bench.evaluate(program("row_sum_tree"))
    assert not stuck, stuck[0]
    assert found.passed and gave[0] > 20


def test_held_parameters_have_a_process_that_no_baseline_blocks(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = bench.gpus["cuda"]
    with warm.host() as host, open_task(CORPUS / "tasks/layer_norm.py", host) as handle:
        with GpuTask(own.gpu, handle) as task:
            handle.delegate(HeldReference(task.open_holding), HeldFrom(0, 0.0))
            task.begin()
            assert held(handle.init_state(0)) is not None
            holding = task.open_holding()
            assert holding is not task.reference and holding._session is not None
            assert task.judging is holding and own.judging is own.reference
        assert holding._session is None
        with GpuTask(own.gpu, handle) as task:
            monkeypatch.setattr(task, "large", True)
            assert task.open_holding() is task.reference


def test_score_mode_agrees_and_keeps_the_order(bench: Evaluator) -> None:
    names = [("row_sum_tree", "honest"), ("tail_write", "broken"), ("row_sum_wave", "honest"), ("lds_index", "broken")]
    with BatchScorer(bench, workers=2) as scorer:
        scorer.warm()
        scored = scorer.score([program(*name) for name in names])
    assert [one.passed for one in scored] == [True, False, True, False], [one.message for one in scored]
    assert all(one.fault == "candidate" for one in scored if not one.passed)
    assert all(set(one.targets["cuda"].timing.versus) == {"eager"} for one in scored if one.passed)  # type: ignore[union-attr]


def test_score_mode_untimed_passes_without_a_timing(bench: Evaluator) -> None:
    with BatchScorer(bench, workers=2) as scorer:
        right, wrong = scorer.score([program("row_sum_tree"), program("tail_write", "broken")], timed=False)
    assert right.passed and right.targets["cuda"].timing is None and right.coverage == 1.0
    assert not wrong.passed and wrong.fault == "candidate"


def test_score_mode_without_room_for_the_inputs_in_each_worker(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuTask, "fits_workers", lambda self, workers: False)
    with BatchScorer(bench, workers=2) as scorer:
        scored = scorer.score([program("row_sum_tree"), program("tail_write", "broken")])
    assert [one.passed for one in scored] == [True, False]
    assert scored[0].targets["cuda"].timing is not None


def test_a_slow_build_keeps_nobody_waiting(bench: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, ended = program("row_sum_tree"), []
    verify, build = score.verify, score.build
    freed = threading.Event()

    def built(gpu: GpuContext, target: str, one: Program) -> EvaluationState:
        if one.text == slow.text:
            assert freed.wait(60), "the others wait for the slow one"
        return build(gpu, target, one)

    def verified(evaluator: Evaluator, target: str, one: EvaluationState, *workers: Any) -> EvaluationState:
        found = verify(evaluator, target, one, *workers)
        ended.append(one.program.text)
        if len(ended) == 2:
            freed.set()
        return found

    monkeypatch.setattr(score, "build", built)
    monkeypatch.setattr(score, "verify", verified)
    with BatchScorer(bench, workers=2) as scorer:
        found = scorer.score([slow, program("row_sum_wave"), program("tail_write", "broken")])
    assert ended[-1] == slow.text and [one.passed for one in found] == [True, True, False]


def test_large_inputs_lie_in_one_worker(bench: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A winner is measured again after the worker of the first measurement has ended; the reference stays."""
    task = bench.gpus["cuda"]
    monkeypatch.setattr("hipwright.evaluation.gpu.timing_context.BIG_BYTES", 0)
    monkeypatch.setattr(task, "large", True)
    task._known.clear()
    opened: list[bool] = []
    again = GpuTask._remeasured

    def watched(self: GpuTask, *args: Any) -> Any:
        opened.append(task.worker.session is None and task.reference._session is not None)
        return again(self, *args)

    monkeypatch.setattr(GpuTask, "_remeasured", watched)
    found = bench.evaluate(program("row_sum_wave"), thorough=True)
    task._known.clear()
    assert found.passed and opened == [True], (found.message, opened)
    timing = found.targets["cuda"].timing
    assert timing is not None and timing.own_time is None and "second measurement" in " ".join(timing.notes)


def test_a_candidate_wrong_only_in_timed_calls_is_refused_where_inputs_are_large_too(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first call is right: only new values in the slot of a timed call show that it hands out an old result."""
    monkeypatch.setattr("hipwright.evaluation.gpu.timing_context.BIG_BYTES", 0)
    gpu = bench.gpus["cuda"].gpu
    with open_task(CORPUS / "tasks/linear.py", warm.host()) as handle, GpuTask(gpu, handle) as task:
        assert task.large

        def timed(kind: str, name: str) -> TimingResult:
            one = program(name, kind)
            parsed = parse(one.text)
            build = gpu.build(parsed.hip, dict(parsed.defines(one.knobs)))
            return task.time(one, build, gate="full", again=False)

        honest, wrong = timed("honest", "linear_packed"), timed("broken", "first_result")
        assert honest.verdict is None and honest.timing is not None
        assert not any("not verified" in note for note in honest.timing.notes)
        assert wrong.verdict is not None and wrong.verdict.fault == "candidate"
        assert "in a timed call" in wrong.verdict.message and wrong.verdict.status == "wrong_value"
        at = task._known["full"]
        lost = Baselines(at.baselines.sides, {"compile": "torch.compile gives none within 60 s, the limit of this run"})
        task._known["full"] = replace(at, late=False, baselines=lost)
        unseen = timed("broken", "first_result")
        assert unseen.timing is not None and unseen.timing.missing == lost.missing
        assert any("outputs of timed calls were not verified" in note for note in unseen.timing.notes)
        assert "no compile baseline: torch.compile gives none within 60 s" in " ".join(unseen.timing.notes)


def test_a_winner_is_measured_again_on_fresh_values_and_warm_baselines(
    bench: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baselines' inputs and parameters change in place; none is opened, compiled or captured again."""
    task = bench.gpus["cuda"]
    found = bench.evaluate(program("row_sum_wave"))
    before = task._known["full"]
    sides = [side.number for kept in before.baselines.sides for side in kept.opened]
    old = before.reference.inputs(task.workload, before.seed).digests()
    again = bench.evaluate(program("row_sum_wave"), thorough=True)
    after = task._known["full"]
    assert found.passed and again.passed and after.seed != before.seed
    assert [side.number for kept in after.baselines.sides for side in kept.opened] == sides
    assert {kept.seed for kept in after.baselines.sides} == {after.seed}
    renewed = after.reference.inputs(task.workload, after.seed).digests()
    with task.gpu.reference(task.handle) as other:
        assert renewed == other.inputs(task.workload, after.seed).digests() != old


def test_score_mode_tells_what_it_cannot_take(bench: Evaluator) -> None:
    with BatchScorer(bench, workers=1) as scorer:
        (found,) = scorer.score([Program(form="modelnew", text="class ModelNew: pass")])
        (broken,) = scorer.score([Program(text="this is no program")])
    assert not found.passed and "programs only" in found.message
    assert broken.status == "parse_error" and broken.fault == "candidate"


def test_what_is_timed_is_what_was_parsed(bench: Evaluator) -> None:
    """Late inputs: a program that caches its first result is found by the outputs of timed calls."""
    text = program("static_output", "broken").text
    parse(text)
    found = bench.evaluate(Program(text=text))
    assert not found.passed and found.fault == "candidate"


def test_a_tasks_processes_start_in_the_background(bench: Evaluator) -> None:
    """A verification uses the processes that `begin` starts, and they end with the task."""
    own = bench.gpus["cuda"]
    with GpuTask(own.gpu, own.handle) as task:
        task.begin()
        reference = task.reference
        assert task.reference is reference and reference.info["name"]
        task._started()
        session = task.worker.session
        assert session is not None and session.alive
    assert not session.alive


def test_a_task_that_ends_at_once_leaves_nothing_behind(bench: Evaluator) -> None:
    own = bench.gpus["cuda"]
    with GpuTask(own.gpu, own.handle) as task:
        task.begin()
    assert task.worker.session is None and task._reference is not None and not task._reference._session
