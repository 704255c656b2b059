"""Judges: a problem and a program in, an Evaluation out, many at once (docs/rewards.md).

Faults of the machine are tried once more and then told in the Evaluation, never as a wrong kernel. A program that was
judged before is not judged again: equal programs have equal figures.
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
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from hipwright.errors import BadInput, HipwrightError, InfrastructureError
from hipwright.evaluation.faults import failed, retried
from hipwright.machine import Machine, machine
from hipwright.records import Evaluation, Program, TargetResult, content_key
from hipwright.targets import CPU, REPRESENTATIVE, TARGETS
from hipwright.train.judging.open_tasks import OpenTaskCache, key_of
from hipwright.train.judging.protocols import JudgeBackend
from hipwright.train.judging.stage_times import StageTimes
from hipwright.train.records import Clock, TrainingProblem

_GPUS = TARGETS.gpu_choices()
ESTIMATED = (CPU.name, REPRESENTATIVE.name)
"""The targets of a judge without a GPU: verified on the processor, timed by the static estimate."""
ATTEMPTS = 2
RULES = 2  # of judging: 2 looks at the timed size too; what was remembered under others is not believed
COMPILE_S = 20.0  # a batch waits for its slowest; honest programs take at most a few
UNDER_WAY = 256
"""Programs at once, at least: those that wait for the clock must not keep others from being built and verified."""
OPEN_TASKS = 24  # each holds a process, and one to two gigabytes of a GPU


class LocalJudge:
    """Judges on this machine, programs of many tasks at once.

    targets: one GPU target: the fast gate and a short paired timing against eager on one GPU. Else of "cpu" and
    AMD targets such as "gfx942": the fast gate on the processor, and where there is an AMD target the clock "estimate".
    open_tasks: how many stay open; shared_hosts: GPU processes that their references share, for tasks that trust each
    other (0: one for each task, which takes seconds to start); workers: programs verified at once, 0 for what the
    processors allow; seed: of the verification inputs, None for secret ones; limit_s: wall seconds of one call of a
    program on a GPU (None: 10); compile_s: of one compile for a GPU; counters: read the hardware counters of every
    right program too (train/judging/counters.py; seconds a program); gpu, gpu_memory_gb, unsafe, cache: as
    `hipwright.machine.machine`; opener: another machine than this one's;
    remember: judged programs that are kept.

    Everything starts on entering. Errors of starting are those of `machine`.
    """

    def __init__(
        self,
        targets: Sequence[str] = ESTIMATED,
        *,
        open_tasks: int = OPEN_TASKS,
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
        remember: int = 20_000,
        opener: Callable[[], AbstractContextManager[Machine]] | None = None,
    ) -> None:
        self.targets = _checked(tuple(dict.fromkeys(targets)))
        self.clock: Clock = _clock(self.targets)
        self.device = ""
        self.account = StageTimes()
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
        self._open_tasks, self._workers, self._seed, self._limit_s = max(1, open_tasks), workers, seed, limit_s
        self._remember, self._counters = remember, counters
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
            self._made = made = stack.enter_context(self._opener())
            self._lane = stack.enter_context(self._lane_of(made))
            self.device = self._lane.device
            self._shelf = OpenTaskCache(self._lane.open, self._open_tasks, openers=min(16, max(2, _processors())))
            self._jobs = ThreadPoolExecutor(max(UNDER_WAY, 8 * self._open_tasks), thread_name_prefix="judge")
            self.account.restart()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End everything. What waits is cancelled, what runs comes to a fault of the service."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        self._jobs.shutdown(wait=False, cancel_futures=True)
        self._shelf.refuse()
        self._lane.close()
        while not self._shelf.idle(0.5):  # a process that was killed is replaced by the next call
            self._lane.close()
        self._shelf.close()
        self._jobs.shutdown(wait=True)
        stack.close()

    # ---------------------------------------------------------------- judging

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The evaluation to come. A program that is being judged is not judged twice."""
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        key = content_key("judged", key_of(problem), program.key)
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
            found = self._running[key] = self._jobs.submit(self._job, key, problem, program)
        found.add_done_callback(lambda _: self._ended(key, found))
        return found

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Open these tasks in the background, as far as there is room."""
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        self._shelf.prefetch(problems)

    def warm(self, problems: Sequence[TrainingProblem]) -> None:
        """Open these now, as many as stay open, start the processes that judge, and wait; what fails to open or to
        start is told of when it is asked for."""
        some = problems[: self._open_tasks]
        self.prefetch(some)
        self._lane.warm()
        for problem in some:
            with suppress(HipwrightError), self._shelf.lease(problem):
                pass

    def begin(self, scope: str) -> None:
        """Judge as if nothing had been judged or built before, but what was built since an earlier `begin` of this
        scope; figures count from now. Waits for what is being judged."""
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        with self._lock:
            running = list(self._running.values())
        wait(running)
        with self._lock:
            self._known.clear()
            self.counts.clear()
        self._made.cache.scope = scope
        self.account.restart()

    @contextmanager
    def sharing(self, stage: str = "policy") -> Iterator[None]:
        """For work of the caller's own on the GPU that times (generation, a step of training): it waits while programs
        are timed, and nothing is timed within the block, while verification goes on. Never wait for a verdict inside:
        it may be one that waits for the clock."""
        if self._stack is None:
            raise InfrastructureError("the judge is not open", hint="use it as a context manager")
        with ExitStack() as stack:
            with self.account.during(f"wait: {stage}"):
                stack.enter_context(self._lane.sharing())
            with self.account.during(stage, *(("gpu",) if self.clock == "device" else ())):
                yield

    def _job(self, key: str, problem: TrainingProblem, program: Program) -> Evaluation:
        def may_retry() -> bool:
            if self._stack is None:
                return False
            self._count("retries")
            return True

        evaluation = retried(lambda: self._attempt(problem, program), ATTEMPTS, may_retry)
        self._count("judged")
        if evaluation.fault in (None, "candidate"):
            self._keep(key, evaluation)
        else:
            self._count("faults")
        return evaluation

    def _attempt(self, problem: TrainingProblem, program: Program) -> Evaluation:
        try:
            with self.account.during("judge", what=problem.name):
                return self._lane.judge(problem, program, self._shelf)
        except Exception as error:
            return failed(content_key("problem", problem.source), program.key, error)

    def _ended(self, key: str, found: Future[Evaluation]) -> None:
        with self._lock:
            if self._running.get(key) is found:
                del self._running[key]

    def _keep(self, key: str, evaluation: Evaluation) -> None:
        with self._lock:
            self._known[key] = slim(evaluation)
            while len(self._known) > self._remember:
                self._known.popitem(last=False)

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    @contextmanager
    def _lane_of(self, made: Machine) -> Iterator[JudgeBackend]:
        from hipwright.train.judging.backends import CpuJudgeBackend, GpuJudgeBackend

        lane: JudgeBackend
        if self.clock == "device":
            lane = GpuJudgeBackend(
                made, self.targets[0], self.account, self._seed, self._workers, self._limit_s, self._counters
            )
        else:
            lane = CpuJudgeBackend(made, self.account, self._seed, self._workers, self.clock)
        try:
            yield lane
        finally:
            lane.close()

    # ---------------------------------------------------------------- what is told and kept

    def figures(self) -> dict[str, Any]:
        """Counts, tasks opened, and where the time goes (`StageTimes.figures`); `an_hour`: programs judged anew."""
        told = self.account.figures()
        with self._lock:
            counts = {name: self.counts[name] for name in ("judged", "hits", "retries", "faults")}
        opened = {"opened": self._shelf.opened, "evicted": self._shelf.evicted} if self._stack is not None else {}
        return {**counts, **opened, "an_hour": round(3600 * counts["judged"] / max(told["wall_s"], 1e-9), 1), **told}

    @property
    def identity(self) -> dict[str, Any]:
        """What its figures rest on; figures of another identity are not comparable."""
        where = {"targets": list(self.targets), "clock": self.clock, "device": self.device}
        return {**where, "seed": self._seed, "counters": self._counters, "rules": RULES}

    def state(self) -> dict[str, Any]:
        """For a checkpoint: what is known of programs, and on what it rests. Plain JSON types."""
        with self._lock:
            known = {key: evaluation.to_dict() for key, evaluation in self._known.items()}
            return {"identity": self.identity, "counts": dict(self.counts), "known": known}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, beside what is known already. BadInput where it was made with another device, clock,
        seed or targets."""
        other = state["identity"]
        differs = [
            f"{name} {other.get(name)!r} then, {now!r} now"
            for name, now in self.identity.items()
            if other.get(name) != now
        ]
        if differs:
            raise BadInput(
                f"the checkpoint's rewards come from another judge: {'; '.join(differs)}",
                hint="go on where it was made, or begin anew: rewards of two devices do not compare",
            )
        known = {key: Evaluation.from_dict(plain) for key, plain in state["known"].items()}
        with self._lock:
            self._known.update(known)
            self.counts.update(state["counts"])


def slim(evaluation: Evaluation) -> Evaluation:
    """The evaluation without the single samples of its timings: one entry is left, the median."""
    return replace(evaluation, targets={name: _slim(result) for name, result in evaluation.targets.items()})


def _slim(result: TargetResult) -> TargetResult:
    from statistics import median

    if result.timing is None:
        return result
    versus = {
        name: replace(one, samples_ms=_of(median, one.samples_ms), baseline_ms=_of(median, one.baseline_ms))
        for name, one in result.timing.versus.items()
    }
    return replace(result, timing=replace(result.timing, versus=versus))


def _of(median: Callable[[Sequence[float]], float], samples: tuple[float, ...]) -> tuple[float, ...]:
    return (median(samples),) if samples else ()


def _clock(targets: tuple[str, ...]) -> Clock:
    if TARGETS.is_gpu(targets[0]):
        return "device"
    return "estimate" if targets != (CPU.name,) else ""


def _checked(targets: tuple[str, ...]) -> tuple[str, ...]:
    """The targets, if they go together; BadInput."""
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
