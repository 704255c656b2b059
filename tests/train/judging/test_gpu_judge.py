"""LocalJudge on a GPU, with the processor in the GPU's place; compilers and sandboxes are real."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import DeviceError
from hipwright.evaluation import program_stages
from hipwright.machine import Machine
from hipwright.measure.profiling.profile import Profile
from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileReport
from hipwright.records import Program
from hipwright.train.environment import outcome
from hipwright.train.judging.backends import STANDBY_PROCESSES, GpuJudgeBackend
from hipwright.train.judging.judges import LocalJudge
from hipwright.train.mini.corpus import at_shape, capture_composition, schedules
from hipwright.train.mini.form import read
from hipwright.train.mini.tasks import Composition
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.side import GpuSide
from tests.train.judging.judged import BAD, GOOD, problem, processor_machine, program

pytestmark = pytest.mark.slow


def test_warm_starts_the_processes_before_the_first_program(cache: Path) -> None:
    with LocalJudge(("cuda",), open_tasks=1, workers=2, opener=partial(processor_machine, cache)) as judge:
        judge.warm([problem("row_sum")])
        backend = judge._backend
        assert isinstance(backend, GpuJudgeBackend) and len(backend._processes) == 4
        started = [worker.session for worker in backend._processes]
        assert all(session is not None and session.running for session in started)
        deadline = time.monotonic() + 60
        while backend._standby.ready < STANDBY_PROCESSES and time.monotonic() < deadline:
            time.sleep(0.02)
        assert backend._standby.ready == STANDBY_PROCESSES
        assert judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=120).passed
        assert [worker.session for worker in backend._processes] == started


def test_a_process_that_does_not_start_is_a_device_fault(cache: Path) -> None:
    @contextmanager
    def opener() -> Iterator[Machine]:
        with processor_machine(cache) as made:
            session = made.gpus["cuda"].workers.session

            def start(*args: Any, **named: Any) -> Any:
                if refusing:
                    raise DeviceError("no context to be had")
                return session(*args, **named)

            made.gpus["cuda"].workers.session = start  # type: ignore[method-assign]
            yield made

    refusing = [True]
    with LocalJudge(("cuda",), open_tasks=1, workers=1, opener=opener) as judge:
        judge.warm([problem("row_sum")])
        found = judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=120)
        assert (found.fault, found.passed) == ("device", False) and "no context to be had" in found.message
        refusing.clear()
        assert judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=120).passed


own_hosts = pytest.mark.parametrize("timed", [0], indirect=True, ids=["a host for each task"])
any_hosts = pytest.mark.parametrize("timed", [0, 2], indirect=True, ids=["a host for each task", "two shared hosts"])
LARGE = (4096, 768)  # more elements than the oracle runs on the host (oracle.FULL_ELEMENTS)


@pytest.fixture(scope="module")
def timed(request: Any, cache: Path) -> Iterator[LocalJudge]:
    """A judge that times; the parameter is its number of shared hosts."""
    opener = partial(processor_machine, cache, request.param)
    with LocalJudge(("cuda",), open_tasks=2, workers=2, opener=opener) as made:
        yield made


@any_hosts
def test_programs_are_timed_against_eager(timed: LocalJudge, tmp_path: Path) -> None:
    tasks = ("row_sum", "scale_bias", "softmax")
    asked = [(task, name, kind) for task in tasks for name, kind in ((GOOD[task], "honest"), (BAD[task], "broken"))]
    asked += [("softmax", "library_then_copy", "hostile"), ("row_sum", "row_sum_tree", "honest")]
    waiting = [timed.submit(problem(task), program(name, kind)) for task, name, kind in asked]
    found = [future.result(timeout=280) for future in waiting]
    assert [one.passed for one in found] == [kind != "broken" for _, _, kind in asked], [one.message for one in found]
    told = [outcome(one, program(name, kind)) for one, (_, name, kind) in zip(found, asked, strict=True)]
    for one in told:
        assert (one.clock, one.baseline) == (("device", "eager") if one.correct else ("", ""))
        assert not one.correct or 0 < one.low <= one.speedup <= one.high  # type: ignore[operator]
    assert told[-2].coverage < 0.1 < told[0].coverage
    figures = timed.figures()
    assert figures["faults"] == 0 and figures["evicted"] >= 1
    stages = figures["stages"]
    assert {"build", "opening", "verify", "time", "gpu", "wait: task", "wait: worker", "wait: timing"} <= set(stages)
    assert stages["time"]["count"] == 5 and 0 < stages["gpu"]["busy_share"] <= 1
    timed.stage_times.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    overlapping = [e for e in events if e["name"] == "verify"], [e for e in events if e["name"] == "time"]
    for verify in overlapping[0]:
        for timing in overlapping[1]:
            first, second = sorted((verify, timing), key=lambda event: event["ts"])
            assert first["ts"] + first["dur"] <= second["ts"] + 200, "microseconds"


@own_hosts
def test_only_measurements_run_alone_on_the_gpu(timed: LocalJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, warm-up and capture of a program, and the assessment of its timing, overlap with verification."""
    alone: list[tuple[str, bool]] = []
    ask, assess = GpuSide._ask, program_stages.coverage

    def asked(self: GpuSide, method: str, *more: Any) -> Any:
        alone.append((method, timed._backend._timings._lock._timing))  # type: ignore[attr-defined]
        return ask(self, method, *more)

    def assessed(*given: Any) -> Any:
        alone.append(("assess", timed._backend._timings._lock._timing))  # type: ignore[attr-defined]
        return assess(*given)

    monkeypatch.setattr(GpuSide, "_ask", asked)
    monkeypatch.setattr(program_stages, "coverage", assessed)
    text = program("row_sum_wave").text + "\n# not judged before\n"
    assert timed.submit(problem("row_sum"), Program(text=text)).result(timeout=120).passed
    assert [is_alone for method, is_alone in alone if method == "time_prepare"] == [False]
    assert [is_alone for method, is_alone in alone if method == "assess"] == [False]
    assert {is_alone for method, is_alone in alone if method == "time_block"} == {True}


@own_hosts
def test_timing_pauses_for_the_callers_own_work(timed: LocalJudge) -> None:
    """Verification continues during the pause."""
    another = Program(text=program("scale_bias_vector").text + "\n# not seen yet\n")
    done = timed.submit(problem("scale_bias"), program("scale_bias_vector")).result(timeout=120)
    before = timed.figures()["stages"]
    assert done.passed and {"verify", "time"} <= before.keys()
    with timed.timing_paused():
        waiting = timed.submit(problem("scale_bias"), another)
        deadline = time.monotonic() + 120
        while timed.figures()["stages"]["verify"]["count"] == before["verify"]["count"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1.0)
        assert not waiting.done() and timed.figures()["stages"]["time"]["count"] == before["time"]["count"]
    assert waiting.result(timeout=120).passed
    assert timed.figures()["stages"]["policy"]["busy_s"] >= 1.0


@own_hosts
@pytest.mark.parametrize(
    ("written", "right", "wrong"),
    [("x.shape[0] == 4096", "1.0f", "1.125f"), ("cdiv(x_0 * x_1, ", "cdiv(x_0 * x_1, ", "cdiv(1048576, ")],
    ids=["one shape", "any shape"],
)
def test_the_timed_shape_is_verified(timed: LocalJudge, written: str, right: str, wrong: str) -> None:
    """A program may be correct on small shapes and leave out most of the timed one."""
    task = Composition(("double", "shift"), "float32")
    asked = task.problem(LARGE, "train")
    drawn = schedules(at_shape(capture_composition(task), LARGE), random.Random(1), 8, Counter())
    text = next(text for text in drawn if written in text)
    good, bad = (read(one, asked) for one in (text, text.replace(right, wrong)))
    assert isinstance(good, Program) and isinstance(bad, Program) and good != bad
    found, refused = (timed.submit(asked, one).result(timeout=280) for one in (good, bad))
    assert found.passed and outcome(found, good).speedup, found.message
    verdict = found.targets["cuda"].verdict
    assert verdict is not None and verdict.workloads[-1] == "given" and "given" not in verdict.skipped
    assert (refused.status, refused.fault) == ("wrong_value", "candidate"), refused.message
    assert "given" in refused.message and not refused.targets["cuda"].timing


@own_hosts
def test_an_equal_result_is_not_fetched_again(timed: LocalJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result with the bits of a verified one is compared on the device; others are fetched to the host, being too few
    bytes for a bridge.
    """
    shape = (1280, 768)  # not verified by another test
    task = Composition(("double", "shift"), "float32")
    asked = task.problem(shape, "train")
    drawn = schedules(at_shape(capture_composition(task), shape), random.Random(1), 8, Counter())
    text = next(text for text in drawn if "cdiv(x_0 * x_1, " in text)
    fetched: list[str] = []
    fetch = LoadedProgram.fetch
    monkeypatch.setattr(
        LoadedProgram, "fetch", lambda self, *given: (fetched.append(self.program.key), fetch(self, *given))[1]
    )
    short = text.replace("cdiv(x_0 * x_1, ", "cdiv(524288, ")
    texts = {"first": text, "same": text + "\n# the same", "short": short}
    found = {}
    for name, one in texts.items():
        judged = read(one, asked)
        assert isinstance(judged, Program)
        before = len(fetched)
        found[name] = (str(timed.submit(asked, judged).result(timeout=280).status), len(fetched) > before)
    assert found == {"first": ("pass", True), "same": ("pass", False), "short": ("wrong_value", True)}


@own_hosts
def test_a_hanging_program_does_not_block_others(timed: LocalJudge) -> None:
    timed._backend._workers[0].call_limit_s = timed._backend._workers[1].call_limit_s = 3.0  # type: ignore[attr-defined]
    hangs = timed.submit(problem("row_sum"), program("endless", "broken"))
    right = timed.submit(problem("row_sum"), Program(text=program("row_sum_wave").text + "\n# another key\n"))
    assert right.result(timeout=120).passed
    assert hangs.result(timeout=120).status == "timeout"
    assert hangs.result().fault == "candidate"


@any_hosts
def test_killed_workers_are_replaced(timed: LocalJudge) -> None:
    """Processes that are killed between two programs are started again, without a fault."""
    for worker in timed._backend._processes:  # type: ignore[attr-defined]
        if worker.session is not None:
            worker.session.close()
    found = timed.submit(problem("softmax"), Program(text=program("softmax_online").text + "\n# again\n"))
    assert found.result(timeout=120).passed, found.result()
    for name in GOOD:  # evicts tasks whose inputs were in the killed processes
        again = timed.submit(problem(name), Program(text=program(GOOD[name]).text + "\n# once more\n"))
        assert again.result(timeout=120).passed, again.result()


@own_hosts
def test_a_broken_process_is_replaced_by_one_on_standby(timed: LocalJudge) -> None:
    """Standby processes start outside of timings and end with the judge."""
    backend = timed._backend
    standby = backend._standby  # type: ignore[attr-defined]
    assert timed.submit(problem("softmax"), Program(text=program("softmax_online").text + "\n# s\n")).result(240).passed
    end = time.monotonic() + 60
    while standby.ready < 2 and time.monotonic() < end:
        time.sleep(0.05)
    waiting = list(standby._ready)
    assert len(waiting) == 2
    worker = backend._workers[0]  # type: ignore[attr-defined]
    worker.recycle()
    worker.open()
    assert worker.session is waiting[0]


@any_hosts
def test_a_worker_forgets_a_task(timed: LocalJudge) -> None:
    """A closed task leaves neither tables nor inputs in a worker."""
    backend = timed._backend
    with timed._tasks.lease(problem("row_sum")) as bench:
        assert timed._backend.judge(problem("row_sum"), program("row_sum_wave"), timed._tasks).passed
        timer = backend._choose_timer(problem("row_sum"), bench).worker  # type: ignore[attr-defined]
        sets = set(timer.placed)
        task = bench.evaluator.gpus["cuda"]
        name = next(at.set_name for at in task._known.values())
        assert name in sets
        held = len(timer._tables)
        task.release_timings(timer)
        assert name not in timer.placed and len(timer._tables) == held - 1


def test_counters_become_metrics_and_a_failing_profiler_is_a_fault(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fake profiler and real programs."""
    handed: list[ProfiledProgram] = []

    def profiled(subject: ProfiledProgram, *, index: int, unsafe: bool) -> ProfileReport:
        handed.append(subject)
        if len(handed) > 1:
            raise DeviceError("the counters may not be read")
        profile = Profile(kernel="row_sum", target="cuda", duration_us=3.0, occupancy_pct=25.0)
        return ProfileReport(target="cuda", profiles=(profile,), tool="ncu", contained=True)

    monkeypatch.setattr("hipwright.train.judging.counters.profile_program", profiled)
    monkeypatch.setattr("hipwright.train.judging.backends.find_tool", lambda target: Path("ncu"))
    with LocalJudge(("cuda",), workers=1, counters=True, opener=partial(processor_machine, cache)) as judge:
        found = judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=240)
        lost = judge.submit(problem("row_sum"), program("row_sum_tree")).result(timeout=240)
    assert outcome(found, program("row_sum_wave")).metrics["occupancy"] == 0.25
    assert handed[0].job.text == program("row_sum_wave").text and handed[0].code and handed[0].inputs
    assert (lost.status, lost.fault) == ("unscorable", "device") and len(handed) == 3
