"""LocalJudge: evaluates programs of many problems concurrently on this machine (docs/rewards.md).

A fault of the machine is retried once and then reported as such in the Evaluation. Verdicts are cached, so that equal
programs have equal figures.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from hipwright.errors import BadInput, HipwrightError, InfrastructureError
from hipwright.evaluation.faults import failed, retried
from hipwright.machine import Machine, machine
from hipwright.records import Evaluation, Program, TargetResult, content_key
from hipwright.targets import CPU, REPRESENTATIVE, TARGETS
from hipwright.train.judging.open_tasks import OpenTaskCache, Weigh, one_each, task_key
from hipwright.train.judging.protocols import JudgeBackend
from hipwright.train.judging.stage_times import StageTimes
from hipwright.train.records import Clock, TrainingProblem

_GPUS = TARGETS.gpu_choices()
ESTIMATED = (CPU.name, REPRESENTATIVE.name)
"""The targets of a judge without a GPU: verified on the processor, timed by the static estimate."""
ATTEMPTS = 2
RULES = 2
"""The version of the judging rules in checkpoints; cached verdicts of other versions are refused. 2 verifies the timed
size too."""
COMPILE_S = 20.0
"""Seconds of a compile, at most: a batch waits for its slowest program, and correct ones take at most a few."""
MIN_JOBS = 256
"""Least number of programs in progress, so that programs waiting to be timed do not keep others from being built."""
MAX_CACHED = 20_000
"""Verdicts that are kept, the most recent ones."""
OPEN_TASKS = 24
"""Tasks kept open by default; each holds a process, and one to two gigabytes of a GPU's memory."""


class LocalJudge:
    """Judges programs of many tasks concurrently on this machine.

    targets: one GPU target (the fast gate and a short paired timing against eager), or "cpu" with AMD targets such as
    "gfx942" (the fast gate on the processor, and the static estimate for the AMD targets). open_tasks: tasks kept
    open; weigh: how many of these one counts as (OpenTaskCache). shared_hosts: processes that the references of all
    tasks share on the GPU, for tasks that trust each other; 0: one for each task, which takes seconds to start.
    workers: programs verified at once, 0 for what the processors allow. seed: of the verification inputs, None for
    secret ones. limit_s: wall seconds of one call of a program on a GPU (None: 10); compile_s: of one compile for a
    GPU. counters: read hardware counters of every correct program (counters.py; seconds a program). gpu,
    gpu_memory_gb, unsafe, cache: as `hipwright.machine.machine`. opener: opens another machine than this one.

    The machine is opened on entering, with the errors of `machine`.
    """

    def __init__(
        self,
        targets: Sequence[str] = ESTIMATED,
        *,
        open_tasks: int = OPEN_TASKS,
        weigh: Weigh = one_each,
        shared_hosts: int = 0,
        workers: int = 0,
        seed: int | None = 0,
        limit_s: float | None = None,
        compile_s: float = COMPILE_S,
        counters: bool = False,
        gpu: int | None = None,
        gpu_memory_gb: float = 0.0,
        unsafe: bool = False,
        cache: Path | None = None,
        opener: Callable[[], AbstractContextManager[Machine]] | None = None,
    ) -> None:
        self.targets = check_targets(tuple(dict.fromkeys(targets)))
        self.clock: Clock = clock_of(self.targets)
        self.device = ""
        self.stage_times = StageTimes()
        self.counts: Counter[str] = Counter()  # judged, hits, retries, faults
        where: dict[str, Any] = {
            "unsafe": unsafe,
            "gpu": gpu,
            "gpu_memory_gb": gpu_memory_gb,
            "shared_hosts": shared_hosts,
            "compile_s": compile_s,
            "cache": cache,
        }
        self._opener = opener or partial(machine, self.targets, **where)
        self._size, self._workers, self._seed, self._limit_s = max(1, open_tasks), workers, seed, limit_s
        self._counters, self._weigh = counters, weigh
        if counters and self.clock != "device":
            raise BadInput("counters are read on a GPU", hint=f"give the target {_GPUS}, or leave counters out")
        self._known: OrderedDict[str, Evaluation] = OrderedDict()
        self._running: dict[str, Future[Evaluation]] = {}
        self._lock = threading.Lock()
        self._stack: ExitStack | None = None

    def __enter__(self) -> Self:
        if self._stack is not None:
            return self
        with ExitStack() as stack:
            self._machine = stack.enter_context(self._opener())
            self._backend = stack.enter_context(self._open_backend(self._machine))
            self.device = self._backend.device
            openers = min(16, max(2, _processors()))
            self._tasks = OpenTaskCache(self._backend.open, self._size, openers, self._weigh)
            self._jobs = ThreadPoolExecutor(max(MIN_JOBS, 8 * self._size), thread_name_prefix="judge")
            self.stage_times.restart()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @property
    def machine(self) -> Machine:
        """The open judge's machine."""
        return self._machine

    def close(self) -> None:
        """Ends all processes. Waiting programs are cancelled; programs in progress end with a fault of the service."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._tasks.stop_opening()
        self._backend.close()
        while not self._tasks.idle(0.5):  # a call in progress may have replaced a killed process
            self._backend.close()
        self._tasks.close()
        self._jobs.shutdown(wait=True)
        stack.close()

    # ---------------------------------------------------------------- judging

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The future evaluation; the same future for equal programs in progress."""
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        key = content_key("judged", task_key(problem), program.key)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self.counts["hits"] += 1
                self._known.move_to_end(key)
                done: Future[Evaluation] = Future()
                done.set_result(known)
                return done
            if (running := self._running.get(key)) is not None:
                self.counts["hits"] += 1
                return running
            found = self._running[key] = self._jobs.submit(self._judge, key, problem, program)
        found.add_done_callback(lambda _: self._end_job(key, found))
        return found

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Opens these tasks in the background, where entries of the task cache are free."""
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        self._tasks.prefetch(problems)

    def warm(self, problems: Sequence[TrainingProblem]) -> None:
        """Opens these tasks, up to the size of the task cache, and starts the processes that judge; waits for both.

        Errors are raised when a task or process is used.
        """
        some = problems[: self._size]
        self.prefetch(some)
        self._backend.warm()
        for problem in some:
            with suppress(HipwrightError), self._tasks.lease(problem):
                pass

    def start_scope(self, scope: str) -> None:
        """Forgets all verdicts and all builds but those of earlier scopes of this name, and resets the figures.

        Waits for programs in progress.
        """
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        with self._lock:
            running = list(self._running.values())
        wait(running)
        with self._lock:
            self._known.clear()
            self.counts.clear()
        self._machine.cache.scope = scope
        self.stage_times.restart()

    @contextmanager
    def timing_paused(self, stage: str = "policy") -> Iterator[None]:
        """A block during which nothing is timed, for the caller's own work on the GPU such as generation or training.

        Waits for the timing in progress; builds and verification continue. stage: the name in the stage times. Waiting
        for a verdict within the block may deadlock, since the program may be waiting to be timed.
        """
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        with ExitStack() as stack:
            with self.stage_times.during(f"wait: {stage}"):
                stack.enter_context(self._backend.timing_paused())
            with self.stage_times.during(stage, *(("gpu",) if self.clock == "device" else ())):
                yield

    def _judge(self, key: str, problem: TrainingProblem, program: Program) -> Evaluation:
        def may_retry() -> bool:
            if self._stack is None:
                return False
            self._count("retries")
            return True

        evaluation = retried(lambda: self._attempt(problem, program), ATTEMPTS, may_retry)
        self._count("judged")
        if evaluation.fault in (None, "candidate"):
            self._cache(key, evaluation)
        else:
            self._count("faults")
        return evaluation

    def _attempt(self, problem: TrainingProblem, program: Program) -> Evaluation:
        try:
            with self.stage_times.during("judge", what=problem.name):
                return self._backend.judge(problem, program, self._tasks)
        except Exception as error:
            return failed(content_key("problem", problem.source), program.key, error)

    def _end_job(self, key: str, found: Future[Evaluation]) -> None:
        with self._lock:
            if self._running.get(key) is found:
                del self._running[key]

    def _cache(self, key: str, evaluation: Evaluation) -> None:
        with self._lock:
            self._known[key] = without_samples(evaluation)
            while len(self._known) > MAX_CACHED:
                self._known.popitem(last=False)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    @contextmanager
    def _open_backend(self, machine: Machine) -> Iterator[JudgeBackend]:
        from hipwright.train.judging.backends import CpuJudgeBackend, GpuJudgeBackend

        backend: JudgeBackend
        if self.clock == "device":
            backend = GpuJudgeBackend(
                machine, self.targets[0], self.stage_times, self._seed, self._workers, self._limit_s, self._counters
            )
        else:
            backend = CpuJudgeBackend(machine, self.stage_times, self._seed, self._workers, self.clock)
        try:
            yield backend
        finally:
            backend.close()

    # ---------------------------------------------------------------- figures and checkpoints

    def figures(self) -> dict[str, Any]:
        """Counts, tasks opened, and `StageTimes.figures`; `an_hour`: programs judged an hour, without cached ones."""
        times = self.stage_times.figures()
        with self._lock:
            counts = {name: self.counts[name] for name in ("judged", "hits", "retries", "faults")}
        opened = {"opened": self._tasks.opened, "evicted": self._tasks.evicted} if self._stack is not None else {}
        return {**counts, **opened, "an_hour": round(3600 * counts["judged"] / max(times["wall_s"], 1e-9), 1), **times}

    @property
    def identity(self) -> dict[str, Any]:
        """What the figures depend on; figures of different identities are not comparable."""
        where = {"targets": list(self.targets), "clock": self.clock, "device": self.device}
        return {**where, "seed": self._seed, "counters": self._counters, "rules": RULES}

    def state(self) -> dict[str, Any]:
        """The cached verdicts with the judge's identity, for a checkpoint; plain JSON types."""
        with self._lock:
            known = {key: evaluation.to_dict() for key, evaluation in self._known.items()}
            return {"identity": self.identity, "counts": dict(self.counts), "known": known}

    def load(self, state: Mapping[str, Any]) -> None:
        """Adds the verdicts of a checkpoint. Raises BadInput where it was made by a judge of another identity."""
        other = state["identity"]
        differs = [
            f"{name} {other.get(name)!r} then, {now!r} now"
            for name, now in self.identity.items()
            if other.get(name) != now
        ]
        if differs:
            raise BadInput(
                f"the checkpoint's rewards come from another judge: {'; '.join(differs)}",
                hint="resume on the same device, or start a new run: rewards of different devices are not comparable",
            )
        known = {key: Evaluation.from_dict(plain) for key, plain in state["known"].items()}
        with self._lock:
            self._known.update(known)
            self.counts.update(state["counts"])


def without_samples(evaluation: Evaluation) -> Evaluation:
    """The evaluation with the median alone in place of the samples of its timings."""
    return replace(evaluation, targets={name: _with_medians(result) for name, result in evaluation.targets.items()})


def _with_medians(result: TargetResult) -> TargetResult:
    if result.timing is None:
        return result
    versus = {
        name: replace(one, samples_ms=_median(one.samples_ms), baseline_ms=_median(one.baseline_ms))
        for name, one in result.timing.versus.items()
    }
    return replace(result, timing=replace(result.timing, versus=versus))


def _median(samples: tuple[float, ...]) -> tuple[float, ...]:
    return (median(samples),) if samples else ()


def clock_of(targets: Sequence[str]) -> Clock:
    """The source of a judge's speedups."""
    if TARGETS.is_gpu(targets[0]):
        return "device"
    return "estimate" if tuple(targets) != (CPU.name,) else ""


def check_targets(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets. Raises BadInput for targets that cannot be combined."""
    gpus = [name for name in targets if TARGETS.is_gpu(name)]
    if gpus and len(targets) > 1:
        raise BadInput(
            f"a judge times on one GPU or estimates, not both: {', '.join(targets)}",
            hint=f"one of {_GPUS.replace(' or ', ' and ')} alone, or {' with AMD targets such as '.join(ESTIMATED)}",
        )
    if not gpus and CPU.name not in targets:
        raise BadInput(
            "nothing would be verified: no target runs programs",
            hint=f"add {CPU.name}, or use {_GPUS} alone",
        )
    return targets


def _processors() -> int:
    return len(os.sched_getaffinity(0))
