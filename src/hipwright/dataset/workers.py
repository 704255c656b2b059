"""Worker processes that each hold something warm and do one job after the other.

A process of its own for each: judging a program keeps a core of the parent busy too (comparing in float64, writing
programs), and threads would share one. A worker that dies or hangs costs its job alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from hipwright.errors import (
    CandidateError,
    DeviceError,
    HipwrightError,
    InfrastructureError,
    TaskError,
    ToolchainError,
    WorkerError,
)

Job = TypeVar("Job")
Result = TypeVar("Result")
Opener = Callable[[], AbstractContextManager[Any]]

GLANCE_S = 1.0  # between two looks for hanging workers
GRACE_S = 5.0  # for a worker to leave by itself
TRIES = 2  # of a job whose worker dies or meets a fault of the machine


@dataclass
class _Worker(Generic[Job]):
    process: BaseProcess
    pipe: Connection
    job: Job | None = None
    since: float = 0.0


@dataclass
class Pool(Generic[Job, Result]):
    """`count` processes. opener: makes what a worker holds (picklable); work: (that, job) -> result (picklable).

    hang_s: a job that takes longer is given up, and its worker killed.
    """

    count: int
    opener: Opener
    work: Callable[[Any, Job], Result]
    hang_s: float = 3600.0
    _workers: list[_Worker[Job]] = field(default_factory=list)
    _tries: Counter[int] = field(default_factory=Counter)  # by the job's identity

    def run(self, jobs: Iterable[Job]) -> Generator[tuple[Job, Result | HipwrightError], None, None]:
        """Every job with its result or the error that ended it, as they come. Raises what kept a worker from opening.

        Closing the generator ends the workers.
        """
        waiting = iter(jobs)
        again: list[Job] = []
        try:
            while self._feed(waiting, again):
                for job, result in self._collect():
                    self._tries[id(job)] += 1
                    if isinstance(result, InfrastructureError) and self._tries[id(job)] < TRIES:
                        again.append(job)
                    else:
                        del self._tries[id(job)]
                        yield job, result
        finally:
            self._close()

    def _feed(self, waiting: Iterator[Job], again: list[Job]) -> bool:
        """Give every idle worker a job, starting workers as they are needed. -> whether any is busy."""
        while sum(worker.job is not None for worker in self._workers) < self.count:
            job = again.pop() if again else next(waiting, None)
            if job is None:
                break
            worker = next((one for one in self._workers if one.job is None), None) or self._start()
            worker.job, worker.since = job, time.monotonic()
            with contextlib.suppress(OSError):  # it died: seen as the end of its pipe
                worker.pipe.send(job)
        return any(worker.job is not None for worker in self._workers)

    def _collect(self) -> Iterator[tuple[Job, Any]]:
        busy = [worker for worker in self._workers if worker.job is not None]
        ready = wait([worker.pipe for worker in busy], timeout=GLANCE_S)
        for worker in busy:
            job = worker.job
            assert job is not None
            if worker.pipe in ready:
                result = self._receive(worker)
                worker.job = None
                yield job, result
            elif time.monotonic() - worker.since > self.hang_s:
                self._end(worker)
                self._tries[id(job)] = TRIES  # it would take as long again
                yield job, WorkerError(f"no answer within {self.hang_s:.0f} s")

    def _receive(self, worker: _Worker[Job]) -> Any:
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, OSError):
            self._end(worker)
            return WorkerError(f"a worker process ended with code {worker.process.exitcode}")
        if kind == "closed":
            raise value
        return value

    def _start(self) -> _Worker[Job]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self.opener, self.work), daemon=True)
        process.start()
        theirs.close()
        worker: _Worker[Job] = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _end(self, worker: _Worker[Job]) -> None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)

    def _close(self) -> None:
        """Idle workers leave by themselves and take down what they hold; busy ones are killed."""
        for worker in self._workers:
            try:
                worker.pipe.send(None)
            except OSError:
                continue
        deadline = time.monotonic() + GRACE_S
        for worker in list(self._workers):
            if worker.job is None:
                worker.process.join(max(0.0, deadline - time.monotonic()))
            self._end(worker)


def _serve(
    pipe: Connection, opener: Callable[[], AbstractContextManager[Any]], work: Callable[[Any, Any], Any]
) -> None:
    """The worker: Ctrl-C is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()
    try:
        with opener() as held:
            while (job := pipe.recv()) is not None:
                pipe.send(("done", _done(work, held, job)))
    except (EOFError, BrokenPipeError):
        return
    except HipwrightError as error:
        pipe.send(("closed", _plain(error)))


def _done(work: Callable[[Any, Any], Any], held: Any, job: Any) -> Any:
    try:
        return work(held, job)
    except HipwrightError as error:
        return _plain(error)
    except Exception as error:  # of ours: the job is named with it, and the next one goes on
        return HipwrightError(f"{type(error).__name__}: {error}")


def _plain(error: HipwrightError) -> HipwrightError:
    """The same error of a class that can be pickled: some take other arguments than a message."""
    kinds = {"task": TaskError, "candidate": CandidateError, "toolchain": ToolchainError, "device": DeviceError}
    kind = kinds.get(error.fault, WorkerError if isinstance(error, InfrastructureError) else HipwrightError)
    return kind(error.message, hint=error.hint, status=error.status, stage=error.stage)


def _leave_with_the_parent() -> None:
    """A parent that was killed leaves nobody to work for; what this process started dies with it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
