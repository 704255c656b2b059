"""Verifiers under audit: the evaluator on one target behind one gate, with every task of the corpus opened once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hipwright import config
from hipwright.audit.cases import CorpusCase
from hipwright.audit.verdicts import ObservedVerdict, observed_verdict
from hipwright.errors import FleetAway, HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.evaluation.gpu.context import GpuContext, open_gpu
from hipwright.evaluation.gpu.task import GpuTask
from hipwright.records import Program
from hipwright.sandbox import Limits, Zygote
from hipwright.targets import CPU, Target
from hipwright.task import TaskHandle, open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import WORKER, Oracle
from hipwright.verify.verification import Gate

LIMITS = Limits(wall_s=20.0, cpu_s=60.0, memory_mb=4096)  # of one call: some candidates of the corpus never end


class Verifier(Protocol):
    """A verifier of candidates, as the corpus and the confusion matrix use it."""

    @property
    def name(self) -> str:
        """The name in tables."""

    def judge(self, case: CorpusCase) -> ObservedVerdict:
        """The verdict on one candidate. Safe to call from several threads."""


@dataclass
class OpenTask:
    """An open task; the stack closes it."""

    handle: TaskHandle
    evaluator: Evaluator
    stack: ExitStack


@dataclass
class AuditSession:
    """The processes, tasks and expectations that all verifiers of an audit share. seed: None for a secret one."""

    host: Zygote
    candidates: Zygote
    cache: BuildCache
    target: str
    gpus: dict[str, GpuContext]
    seed: int | None = None
    unsafe: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[Path, threading.Lock] = field(default_factory=dict)
    _tasks: dict[Path, OpenTask] = field(default_factory=dict)

    def evaluator(self, task: Path) -> Evaluator:
        """The evaluator of a task, opened on first use. Raises TaskError and errors of the infrastructure."""
        with self._lock:
            lock = self._locks.setdefault(task, threading.Lock())
        with lock:
            if task not in self._tasks:
                self._tasks[task] = self.open_task(task)
            return self._tasks[task].evaluator

    def open_task(self, task: Path) -> OpenTask:
        """A task on the session's processes."""
        with ExitStack() as stack:
            handle = stack.enter_context(open_task(task, self.host))
            gpus = {kind: stack.enter_context(GpuTask(gpu, handle)) for kind, gpu in self.gpus.items()}
            evaluator = Evaluator(
                handle,
                Oracle(handle, seed=self.seed),
                self.candidates,
                self.cache,
                (self.target,),
                unsafe=self.unsafe,
                limits=LIMITS,
                gpus=gpus,
            )
            return OpenTask(handle, evaluator, stack.pop_all())

    def close(self, task: Path | None = None) -> None:
        """Closes one task, or all."""
        for path in [task] if task else list(self._tasks):
            with self._lock:
                opened = self._tasks.pop(path, None)
            if opened:
                opened.stack.close()


@contextmanager
def open_audit(
    target: Target = CPU, *, seed: int | None = None, unsafe: bool = False, cache_folder: Path | None = None
) -> Iterator[AuditSession]:
    """Starts the processes of a target that runs programs; all end with the block."""
    folder = cache_folder or config.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    cache = BuildCache(folder)
    with ExitStack() as stack:
        host = stack.enter_context(Zygote(("torch", "hipwright.task.host.warm"), unsafe=unsafe, name="task host"))
        warm = ("torch", WORKER.partition(":")[0], "hipwright.verify.worker.warm")
        candidates = stack.enter_context(Zygote(warm, unsafe=unsafe, name="candidates", ro=(folder,)))
        gpus: dict[str, GpuContext] = {}
        if target.is_gpu:
            gpus[target.name] = stack.enter_context(open_gpu(target, None, cache, unsafe=unsafe))
        session = AuditSession(host, candidates, cache, target.name, gpus, seed, unsafe)
        stack.callback(session.close)
        yield session


@dataclass(frozen=True)
class TargetVerifier:
    """hipwright's verifier on the session's target, behind one gate. timed: with the checks of the clocks."""

    session: AuditSession
    gate: Gate = "full"
    timed: bool = False

    @property
    def name(self) -> str:
        """Target and gate."""
        return f"{self.session.target} {self.gate}"

    def judge(self, case: CorpusCase) -> ObservedVerdict:
        """Evaluates the candidate on its task."""
        if self.session.target not in case.targets:
            return ObservedVerdict(not_run=f"only {', '.join(case.targets)} can see this")
        if "clocks" in case.checks and not self.timed:
            return ObservedVerdict(not_run="only the clocks can see this (--timed)")
        return self.judge_text(case, case.text)

    def judge_text(self, case: CorpusCase, text: str) -> ObservedVerdict:
        """Evaluates another text in place of the case's own, on its task and in its form."""
        start = time.perf_counter()
        try:
            program = Program(form=case.form, text=text)
            evaluator = self.session.evaluator(case.task_path)
            return observed_verdict(evaluator.evaluate(program, gate=self.gate, timed=self.timed), self.session.target)
        except FleetAway:
            raise
        except HipwrightError as error:
            verdict = error.verdict()
            return ObservedVerdict(
                status=verdict.status,
                fault=verdict.fault,
                stage=verdict.stage,
                message=verdict.message,
                seconds=time.perf_counter() - start,
            )
