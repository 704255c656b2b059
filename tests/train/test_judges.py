"""Judges: many tasks at once, on the cpu target and with the processor in a GPU's place; compilers and sandboxes are
real."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from judged import problem, processor_machine, program

from hipwright.errors import BadInput, DeviceError, InfrastructureError
from hipwright.evaluation import program_stages
from hipwright.machine import Machine, machine
from hipwright.measure.profile import Profile
from hipwright.measure.profiler import ProfiledProgram, ProfileReport
from hipwright.records import Build, Evaluation, Program
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.train.environment import Environment, outcome
from hipwright.train.judging.backends import SPARE, GpuJudgeBackend, TimingWorker
from hipwright.train.judging.counters import shares
from hipwright.train.judging.judges import LocalJudge, slim
from hipwright.train.mini.corpus import at_shape, captured, schedules
from hipwright.train.mini.form import read
from hipwright.train.mini.tasks import Composition
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import REWARDS
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.gpu.side import GpuSide

slow = pytest.mark.slow
TARGETS = ("cpu", "gfx942")
GOOD = {"row_sum": "row_sum_wave", "scale_bias": "scale_bias_guarded", "softmax": "softmax_online"}
BAD = {"row_sum": "tail_read", "scale_bias": "broadcast", "softmax": "uninitialised"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="module")
def judge(cache: Path) -> Iterator[LocalJudge]:
    with LocalJudge(TARGETS, open_tasks=2, workers=2, cache=cache) as made:
        yield made


# ---------------------------------------------------------------- on the processor


@slow
def test_many_tasks_at_once_with_fewer_open_than_asked_for(judge: LocalJudge) -> None:
    """Every answer belongs to its question, though tasks make way for each other while futures wait."""
    judge.prefetch([problem(name) for name in GOOD])
    asked = [(task, kind) for kind in (GOOD, BAD) for task in kind]
    waiting = [
        judge.submit(problem(task), program(kind[task], "honest" if kind is GOOD else "broken")) for task, kind in asked
    ]
    found = [future.result(timeout=240) for future in waiting]
    assert [one.passed for one in found] == [True] * 3 + [False] * 3, [one.message for one in found]
    assert {one.fault for one in found[3:]} == {"candidate"}
    assert [one.program for one in found[:3]] == [program(GOOD[task]).key for task in GOOD]
    assert judge.figures()["evicted"] >= 1 and judge.figures()["faults"] == 0


@slow
def test_a_judged_program_is_not_judged_again(judge: LocalJudge) -> None:
    first = judge.submit(problem("row_sum"), program("row_sum_tree"))
    same = judge.submit(problem("row_sum"), program("row_sum_tree"))
    assert same is first
    found = first.result(timeout=120)
    before = judge.figures()
    again = judge.submit(
        TrainingProblem(name="another name", source=problem("row_sum").source), program("row_sum_tree")
    )
    assert again.done() and again.result() == slim(found)
    after = judge.figures()
    assert (after["hits"] - before["hits"], after["judged"] - before["judged"]) == (1, 0)


@slow
def test_what_is_known_goes_through_a_checkpoint(judge: LocalJudge) -> None:
    found = judge.submit(problem("row_sum"), program("row_sum_tree")).result(timeout=120)
    state = json.loads(json.dumps(judge.state()))
    other = LocalJudge(TARGETS, opener=lambda: pytest.fail("nothing is to be judged"))
    other.load(state)
    assert state["known"] and json.loads(json.dumps(other.state()["known"])) == state["known"]
    for wrong in (LocalJudge(("cpu",)), LocalJudge(TARGETS, seed=1)):
        with pytest.raises(BadInput, match="another judge"):
            wrong.load(state)
    judge.load(state)
    assert judge.submit(problem("row_sum"), program("row_sum_tree")).result() == slim(found)


@slow
def test_what_begins_anew_profits_from_nothing(judge: LocalJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []
    build = amdgpu.build
    monkeypatch.setattr(amdgpu, "build", lambda *a, **k: _noted(compiled, build(*a, **k)))

    def judged(scope: str) -> tuple[int, int]:
        """(judged anew, known)."""
        if scope:
            judge.begin(scope)
        before = judge.figures()
        assert judge.submit(problem("row_sum"), program("row_sum_tree")).result(timeout=120).passed
        after = judge.figures()
        return after["judged"] - before["judged"], after["hits"] - before["hits"]

    judge.begin("")
    assert [judged(scope) for scope in ("", "one", "", "two", "one")] == [(1, 0), (1, 0), (0, 1), (1, 0), (1, 0)]
    assert compiled[-3:] == [False, False, True], "builds of another scope were found, or those of this one were not"
    assert judge.figures()["judged"] == 1
    judge.begin("")


def _noted(found: list[bool], build: Build) -> Build:
    found.append(build.cached)
    return build


@slow
def test_an_estimate_is_told_as_one(judge: LocalJudge) -> None:
    found = judge.submit(problem("scale_bias"), program("scale_bias_vector")).result(timeout=120)
    told = outcome(found, program("scale_bias_vector"), clock=judge.clock)
    assert (told.clock, told.device, told.baseline, judge.device) == ("estimate", "", "library", "")
    assert told.base_ms and told.time_ms and told.floor_ms and told.speedup
    assert told.low == told.high == told.speedup == pytest.approx(told.base_ms / told.time_ms)
    assert told.speedup > 1.0, "three operators of the reference against one kernel"
    assert told.floor_ms < told.time_ms


@slow
def test_a_task_that_does_not_load_says_nothing_of_the_program(judge: LocalJudge) -> None:
    broken = TrainingProblem(name="broken", source="import torch\nraise RuntimeError('no')\n")
    found = judge.submit(broken, program("row_sum_wave")).result(timeout=120)
    assert found.fault == "task" and "no" in found.message
    assert REWARDS["hipwright"]([outcome(found, program("row_sum_wave"))])[0].reward is None


class Killer:
    """Kills the candidates' zygote with every process in it, right after it started a session, `left` times."""

    def __init__(self, made: Machine) -> None:
        self.left = 0
        self._made, self._session = made, made.candidates.session
        made.candidates.session = self.session  # type: ignore[method-assign]

    def session(self, *args: Any, **named: Any) -> Any:
        found = self._session(*args, **named)
        if self.left > 0:
            self.left -= 1
            self._made.candidates.close()
        return found


@slow
def test_a_killed_worker_is_tried_again_and_never_a_wrong_kernel(cache: Path) -> None:
    killers = []

    @contextmanager
    def opener() -> Iterator[Machine]:
        with machine(TARGETS, unsafe=False, cache=cache) as made:
            killers.append(Killer(made))
            yield made

    with LocalJudge(TARGETS, workers=1, opener=opener) as judge:
        killers[0].left = 99
        lost = judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=240)
        assert not judge.state()["known"], "a fault is not remembered"
        killers[0].left = 1
        found = judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=240)
        figures = judge.figures()
    assert (figures["retries"], figures["faults"]) == (2, 1)
    told = [outcome(one, program("row_sum_wave"), clock="estimate") for one in (lost, found)]
    assert [one.status for one in told] == ["unscorable", "pass"], told
    assert [one.reward for one in REWARDS["hipwright"](told)] == [None, pytest.approx(0.3, abs=0.3)]


@slow
def test_closing_in_the_middle_is_no_verdict(cache: Path) -> None:
    judge = LocalJudge(TARGETS, workers=1, cache=cache)
    with judge:
        waiting = [judge.submit(problem(task), program(GOOD[task])) for task in GOOD]
    assert all(future.done() for future in waiting)
    told = [future.result() for future in waiting if not future.cancelled()]
    assert not any(one.fault == "candidate" for one in told), told
    with pytest.raises(InfrastructureError):
        judge.submit(problem("row_sum"), program("row_sum_wave"))


# ---------------------------------------------------------------- a processor in a GPU's place


@slow
def test_what_judges_is_started_before_the_first_program(cache: Path) -> None:
    with LocalJudge(("cuda",), open_tasks=1, workers=2, opener=partial(processor_machine, cache)) as judge:
        judge.warm([problem("row_sum")])
        lane = judge._lane
        assert isinstance(lane, GpuJudgeBackend) and len(lane._processes) == 4
        started = [worker.session for worker in lane._processes]
        assert all(session is not None and session.running for session in started)
        deadline = time.monotonic() + 60
        while lane._standby.ready < SPARE and time.monotonic() < deadline:
            time.sleep(0.02)
        assert lane._standby.ready == SPARE
        assert judge.submit(problem("row_sum"), program("row_sum_wave")).result(timeout=120).passed
        assert [worker.session for worker in lane._processes] == started


@slow
def test_a_process_that_does_not_start_is_told_of_by_the_programs(cache: Path) -> None:
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


@pytest.fixture(scope="module", params=[0, 2], ids=["a host each", "two hosts for all"])
def timed(request: Any, cache: Path) -> Iterator[LocalJudge]:
    opener = partial(processor_machine, cache, request.param)
    with LocalJudge(("cuda",), open_tasks=2, workers=2, opener=opener) as made:
        yield made


@slow
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
    timed.account.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    overlapping = [e for e in events if e["name"] == "verify"], [e for e in events if e["name"] == "time"]
    for verify in overlapping[0]:
        for timing in overlapping[1]:
            first, second = sorted((verify, timing), key=lambda event: event["ts"])
            assert first["ts"] + first["dur"] <= second["ts"] + 200, "microseconds"


@slow
def test_only_the_clock_has_the_gpu_to_itself(timed: LocalJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, warming up and capturing a program, and what is worked out of its timing, keep nobody waiting."""
    alone: list[tuple[str, bool]] = []
    ask, assess = GpuSide._ask, program_stages.coverage

    def asked(self: GpuSide, method: str, *more: Any) -> Any:
        alone.append((method, timed._lane._clock._lock._timing))  # type: ignore[attr-defined]
        return ask(self, method, *more)

    def assessed(*given: Any) -> Any:
        alone.append(("assess", timed._lane._clock._lock._timing))  # type: ignore[attr-defined]
        return assess(*given)

    monkeypatch.setattr(GpuSide, "_ask", asked)
    monkeypatch.setattr(program_stages, "coverage", assessed)
    text = program("row_sum_wave").text + "\n# not judged before\n"
    assert timed.submit(problem("row_sum"), Program(text=text)).result(timeout=120).passed
    assert [is_alone for method, is_alone in alone if method == "time_prepare"] == [False]
    assert [is_alone for method, is_alone in alone if method == "assess"] == [False]
    assert {is_alone for method, is_alone in alone if method == "time_block"} == {True}


@slow
def test_nothing_is_timed_beside_the_callers_own_work(timed: LocalJudge) -> None:
    """Verification goes on meanwhile."""
    another = Program(text=program("scale_bias_vector").text + "\n# not seen yet\n")
    done = timed.submit(problem("scale_bias"), program("scale_bias_vector")).result(timeout=120)
    before = timed.figures()["stages"]
    assert done.passed and {"verify", "time"} <= before.keys()
    with timed.sharing():
        waiting = timed.submit(problem("scale_bias"), another)
        deadline = time.monotonic() + 120
        while timed.figures()["stages"]["verify"]["count"] == before["verify"]["count"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(2.0)
        assert not waiting.done() and timed.figures()["stages"]["time"]["count"] == before["time"]["count"]
    assert waiting.result(timeout=120).passed
    assert timed.figures()["stages"]["policy"]["busy_s"] >= 2.0


@slow
@pytest.mark.parametrize(
    ("written", "right", "wrong"),
    [("x.shape[0] == 4096", "1.0f", "1.125f"), ("cdiv(x_0 * x_1, ", "cdiv(x_0 * x_1, ", "cdiv(1048576, ")],
    ids=["no small shape is claimed", "a grid of another size"],
)
def test_a_program_is_judged_at_the_large_shape_that_is_timed(
    timed: LocalJudge, written: str, right: str, wrong: str
) -> None:
    """A policy found the grid: right on every small shape, and most of the timed one is left out."""
    task = Composition(("double", "shift"), "float32")
    asked = task.problem((4096, 768), "train")
    drawn = schedules(at_shape(captured(task), (4096, 768)), random.Random(1), 8, Counter())
    text = next(text for text in drawn if written in text)
    good, bad = (read(one, asked) for one in (text, text.replace(right, wrong)))
    assert isinstance(good, Program) and isinstance(bad, Program) and good != bad
    found, refused = (timed.submit(asked, one).result(timeout=280) for one in (good, bad))
    assert found.passed and outcome(found, good).speedup, found.message
    verdict = found.targets["cuda"].verdict
    assert verdict is not None and verdict.workloads[-1] == "given" and "given" not in verdict.skipped
    assert (refused.status, refused.fault) == ("wrong_value", "candidate"), refused.message
    assert "given" in refused.message and not refused.targets["cuda"].timing


@slow
def test_a_result_that_was_judged_right_is_known_by_its_bits(
    timed: LocalJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes go through the host for the first of such programs alone."""
    task = Composition(("double", "shift"), "float32")
    asked = task.problem((2048, 768), "train")
    drawn = schedules(at_shape(captured(task), (2048, 768)), random.Random(1), 8, Counter())
    text = next(text for text in drawn if "cdiv(x_0 * x_1, " in text)
    fetched: list[str] = []
    fetch = LoadedProgram.fetch
    monkeypatch.setattr(
        LoadedProgram, "fetch", lambda self, *given: (fetched.append(self.program.key), fetch(self, *given))[1]
    )
    short = text.replace("cdiv(x_0 * x_1, ", "cdiv(1048576, ")
    texts = {"first": text, "same": text + "\n# the same", "short": short}
    found = {}
    for name, one in texts.items():
        judged = read(one, asked)
        assert isinstance(judged, Program)
        before = len(fetched)
        found[name] = (str(timed.submit(asked, judged).result(timeout=280).status), len(fetched) > before)
    assert found == {"first": ("pass", True), "same": ("pass", False), "short": ("wrong_value", True)}


@slow
def test_what_hangs_holds_up_nobody_for_good(timed: LocalJudge) -> None:
    timed._lane._workers[0].call_limit_s = timed._lane._workers[1].call_limit_s = 3.0  # type: ignore[attr-defined]
    hangs = timed.submit(problem("row_sum"), program("endless", "broken"))
    right = timed.submit(problem("row_sum"), Program(text=program("row_sum_wave").text + "\n# another key\n"))
    assert right.result(timeout=120).passed
    assert hangs.result(timeout=120).status == "timeout"
    assert hangs.result().fault == "candidate"


@slow
def test_the_workers_of_a_gpu_are_replaced_when_killed(timed: LocalJudge) -> None:
    """Killed between two programs: the next one starts a new process, and nobody is blamed."""
    for worker in timed._lane._processes:  # type: ignore[attr-defined]
        if worker.session is not None:
            worker.session.close()
    found = timed.submit(problem("softmax"), Program(text=program("softmax_online").text + "\n# again\n"))
    assert found.result(timeout=120).passed, found.result()
    for name in GOOD:  # tasks make way whose sets died with the process
        again = timed.submit(problem(name), Program(text=program(GOOD[name]).text + "\n# once more\n"))
        assert again.result(timeout=120).passed, again.result()


@slow
def test_a_process_that_breaks_is_replaced_by_one_that_waited(timed: LocalJudge) -> None:
    """They are started outside of timings, and end with the judge (the fixture's sandbox would tell)."""
    lane = timed._lane
    standby = lane._standby  # type: ignore[attr-defined]
    assert timed.submit(problem("softmax"), Program(text=program("softmax_online").text + "\n# s\n")).result(240).passed
    end = time.monotonic() + 60
    while standby.ready < 2 and time.monotonic() < end:
        time.sleep(0.05)
    waiting = list(standby._ready)
    assert len(waiting) == 2
    worker = lane._workers[0]  # type: ignore[attr-defined]
    worker.recycle()
    worker.open()
    assert worker.session is waiting[0]


@slow
def test_a_worker_forgets_a_task(timed: LocalJudge) -> None:
    """Neither its table nor its sets stay when it is closed."""
    lane = timed._lane
    with timed._shelf.lease(problem("row_sum")) as bench:
        assert timed._lane.judge(problem("row_sum"), program("row_sum_wave"), timed._shelf).passed
        timer = lane._timer(problem("row_sum"), bench).worker  # type: ignore[attr-defined]
        sets = set(timer.placed)
        task = bench.evaluator.gpus["cuda"]
        name = next(at.set_name for at in task._known.values())
        assert name in sets
        held = len(timer._tables)
        task.leave(timer)
        assert name not in timer.placed and len(timer._tables) == held - 1


def test_programs_that_wait_for_the_clock_keep_no_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tasks, many programs: a wave of twenty that waits to be timed was half of all that were under way."""
    inside, all_in = threading.Semaphore(0), threading.Event()

    class Waits:
        device, clock, open = "", "", nullcontext

        def judge(self, problem: TrainingProblem, program: Program, shelf: object) -> Evaluation:
            inside.release()
            all_in.wait(60)
            return Evaluation(task="t", program=program.key, status="pass")

        def close(self) -> None:
            pass

    monkeypatch.setattr(LocalJudge, "_lane_of", lambda self, made: nullcontext(Waits()))
    with LocalJudge(("cpu",), open_tasks=1, opener=nullcontext) as judge:  # type: ignore[arg-type]
        asked = [judge.submit(problem("row_sum"), Program(text=f"{n}")) for n in range(200)]
        assert all(inside.acquire(timeout=30) for _ in asked)
        all_in.set()
        assert all(future.result(timeout=30).passed for future in asked)


def test_programs_spread_over_the_processes_that_time() -> None:
    """Small inputs go anywhere, large ones into two processes; a process that hangs is waited for by nobody else."""
    lane = object.__new__(GpuJudgeBackend)
    lane._target, lane._timers = "cuda", [TimingWorker(None) for _ in range(8)]  # type: ignore[arg-type]

    def bench(nbytes: int) -> Any:
        return SimpleNamespace(evaluator=SimpleNamespace(gpus={"cuda": SimpleNamespace(timed_bytes=nbytes)}))

    def spread(nbytes: int) -> list[int]:
        taken = []
        with ExitStack() as stack:
            for _ in range(24):
                timer = lane._timer(problem("row_sum"), bench(nbytes))
                taken.append(lane._timers.index(timer))
                timer.waiting += 1
                stack.callback(setattr, timer, "waiting", 0)
        return sorted(Counter(taken).values())

    assert spread(1 << 10) == [3] * 8 and spread(1 << 30) == [12] * 2
    timer, inside = lane._timers[0], []

    def ready(number: int) -> None:
        with timer.turn():
            inside.append(number)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        assert not any(future.exception() for future in [pool.submit(ready, n) for n in range(8)])
    assert timer.waiting == 0


# ---------------------------------------------------------------- counters


def test_counters_are_shares_by_device_time_of_own_kernels() -> None:
    own = Profile(kernel="a", target="cuda", duration_us=30.0, occupancy_pct=50.0, dram_throughput_pct=120.0)
    short = Profile(kernel="b", target="cuda", duration_us=10.0, occupancy_pct=10.0)
    library = Profile(kernel="gemm", target="cuda", own=False, duration_us=900.0, occupancy_pct=100.0, valu_pct=5.0)
    assert shares([own, short, library]) == {"occupancy": 0.4, "dram_throughput": 1.0}
    assert shares([library]) == {}


@slow
def test_counters_join_the_features_and_a_profiler_that_fails_is_a_fault(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profiler is made up; what it is handed is not."""
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


# ---------------------------------------------------------------- without starting anything


@pytest.mark.parametrize("targets", [("cuda", "cpu"), ("gfx942",), ("rocm", "cuda"), ()])
def test_targets_that_do_not_go_together(targets: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        LocalJudge(targets)
    assert caught.value.hint
    with pytest.raises(BadInput, match="on a GPU"):
        LocalJudge(("cpu",), counters=True)


def test_an_environment_opens_and_closes_its_judge() -> None:
    class Counted:
        device, clock = "", ""
        opened = 0

        def __enter__(self) -> Counted:
            self.opened += 1
            return self

        def __exit__(self, *_: object) -> None:
            self.opened -= 1

    judge = Counted()
    with Environment(judge, REWARDS["source"]):  # type: ignore[arg-type]
        assert judge.opened == 1
    assert judge.opened == 0


def test_a_state_that_is_none_is_refused() -> None:
    judge = LocalJudge(("cpu",))
    state = judge.state()
    with pytest.raises(msgspec.ValidationError):
        judge.load({**state, "known": {"x": {"status": "fine"}}})
