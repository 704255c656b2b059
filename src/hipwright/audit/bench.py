"""Verifiers to audit: the evaluator on one target, behind one gate, with every task of the corpus opened once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, Protocol

from hipwright import config
from hipwright.audit.cases import Case, task_path
from hipwright.audit.found import Found, found_in
from hipwright.errors import HipwrightError
from hipwright.evaluate import Evaluator
from hipwright.records import Program
from hipwright.sandbox import Zygote
from hipwright.task import TaskHandle, open_task
from hipwright.toolchain.cache import BuildCache
from hipwright.verify import WORKER, Oracle

Gate = Literal["full", "fast"]


class Verifier(Protocol):
    """Anything that judges candidates; the suite and the matrix ask no more of it."""

    name: str

    def judge(self, case: Case) -> Found:
        """The verdict on one candidate. Safe to call from several threads."""
        ...


class Bench:
    """The processes, tasks and expectations that all verifiers of one audit share."""

    def __init__(self, host: Zygote, candidates: Zygote, cache: BuildCache, *, seed: int | None, unsafe: bool) -> None:
        self.host = host
        self.candidates = candidates
        self.cache = cache
        self.seed = seed
        self.unsafe = unsafe
        self._lock = threading.Lock()
        self._locks: dict[Path, threading.Lock] = {}
        self._tasks: dict[Path, tuple[TaskHandle, Oracle]] = {}

    def opened(self, path: Path) -> tuple[TaskHandle, Oracle]:
        """The task's handle and its expectations, made on first use."""
        with self._lock:
            lock = self._locks.setdefault(path, threading.Lock())
        with lock:
            if path not in self._tasks:
                handle = open_task(path, self.host)
                self._tasks[path] = handle, Oracle(handle, seed=self.seed)
            return self._tasks[path]

    def close(self, path: Path | None = None) -> None:
        """End the host of one task, or of all."""
        for known in [path] if path else list(self._tasks):
            if known in self._tasks:
                self._tasks.pop(known)[0].close()

    def evaluator(self, path: Path, target: str) -> Evaluator:
        """An evaluator of one task on one target."""
        handle, oracle = self.opened(path)
        return Evaluator(handle, oracle, self.candidates, self.cache, (target,), unsafe=self.unsafe)


@contextmanager
def open_bench(*, seed: int | None = None, unsafe: bool = False, cache_folder: Path | None = None) -> Iterator[Bench]:
    """Start the task host and the candidates' process; both end with the block. seed None draws a secret one."""
    folder = cache_folder or config.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        host = stack.enter_context(Zygote(("torch", "hipwright.task.warm"), unsafe=unsafe, name="task host"))
        warm = ("torch", WORKER.partition(":")[0], "hipwright.verify.warm")
        candidates = stack.enter_context(Zygote(warm, unsafe=unsafe, name="candidates", ro=(folder,)))
        bench = Bench(host, candidates, BuildCache(folder), seed=seed, unsafe=unsafe)
        stack.callback(bench.close)
        yield bench


class TargetVerifier:
    """hipwright's own verifier on one target behind one gate."""

    def __init__(self, bench: Bench, target: str = "cpu", gate: Gate = "full") -> None:
        self.bench = bench
        self.target = target
        self.gate = gate
        self.name = f"{target} {gate}"

    def judge(self, case: Case) -> Found:
        """Evaluate the candidate on its task."""
        if self.target not in case.targets:
            return Found(not_run=f"the {self.target} target cannot see this ({', '.join(case.targets)} can)")
        start = time.perf_counter()
        try:
            program = Program(lane=case.lane, text=case.text)
            evaluation = self.bench.evaluator(task_path(case.task), self.target).evaluate(program)
        except HipwrightError as error:
            verdict = error.verdict()
            return Found(
                status=verdict.status, fault=verdict.fault, message=verdict.message, seconds=time.perf_counter() - start
            )
        return found_in(evaluation, self.target)
