"""A pool of worker processes, each with a resource that it opens once and uses for one job after the other.

Jobs need processes, not threads: they compute in Python (comparison in float64, writing programs) and would share the
interpreter lock. A worker that dies or hangs affects its own job only.
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

POLL_S = 1.0  # between two checks for hanging workers
EXIT_S = 5.0  # for an idle worker to exit by itself
MAX_TRIES = 2  # of a job that ends in an infrastructure error


@dataclass
class _Worker(Generic[Job]):
    process: BaseProcess
    pipe: Connection
    job: Job | None = None
    since: float = 0.0


@dataclass
class Pool(Generic[Job, Result]):
    """`count` processes. opener: opens a worker's resource (picklable); work: (resource, job) -> result (picklable).

    timeout_s: the worker of a job that takes longer is killed, and the job gets an error.
    """

    count: int
    opener: Opener
    work: Callable[[Any, Job], Result]
    timeout_s: float = 3600.0
    _workers: list[_Worker[Job]] = field(default_factory=list)
    _tries: Counter[int] = field(default_factory=Counter)  # by the job's identity

    def run(self, jobs: Iterable[Job]) -> Generator[tuple[Job, Result | HipwrightError], None, None]:
        """Yields every job with its result or the error that ended it, in order of completion.

        Raises the error that kept a worker from opening. Closing the generator ends the workers.
        """
        waiting = iter(jobs)
        again: list[Job] = []
        try:
            while self._feed(waiting, again):
                for job, result in self._collect():
                    self._tries[id(job)] += 1
                    if isinstance(result, InfrastructureError) and self._tries[id(job)] < MAX_TRIES:
                        again.append(job)
                    else:
                        del self._tries[id(job)]
                        yield job, result
        finally:
            self._close()

    def _feed(self, waiting: Iterator[Job], again: list[Job]) -> bool:
        """Give idle workers jobs, starting workers as needed; returns whether any worker is busy."""
        while sum(worker.job is not None for worker in self._workers) < self.count:
            job = again.pop() if again else next(waiting, None)
            if job is None:
                break
            worker = next((one for one in self._workers if one.job is None), None) or self._start()
            worker.job, worker.since = job, time.monotonic()
            with contextlib.suppress(OSError):  # a dead worker is found by the end of its pipe
                worker.pipe.send(job)
        return any(worker.job is not None for worker in self._workers)

    def _collect(self) -> Iterator[tuple[Job, Any]]:
        busy = [worker for worker in self._workers if worker.job is not None]
        ready = wait([worker.pipe for worker in busy], timeout=POLL_S)
        for worker in busy:
            job = worker.job
            assert job is not None
            if worker.pipe in ready:
                result = self._receive(worker)
                worker.job = None
                yield job, result
            elif time.monotonic() - worker.since > self.timeout_s:
                self._end(worker)
                self._tries[id(job)] = MAX_TRIES  # a retry would hang as well
                yield job, WorkerError(f"no answer within {self.timeout_s:.0f} s")

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
        parent_end, worker_end = context.Pipe()
        process = context.Process(target=_serve, args=(worker_end, self.opener, self.work), daemon=True)
        process.start()
        worker_end.close()
        worker: _Worker[Job] = _Worker(process, parent_end)
        self._workers.append(worker)
        return worker

    def _end(self, worker: _Worker[Job]) -> None:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)

    def _close(self) -> None:
        """End all workers: idle ones close their resource and exit, busy ones are killed."""
        for worker in self._workers:
            try:
                worker.pipe.send(None)
            except OSError:
                continue
        deadline = time.monotonic() + EXIT_S
        for worker in list(self._workers):
            if worker.job is None:
                worker.process.join(max(0.0, deadline - time.monotonic()))
            self._end(worker)


def _serve(
    pipe: Connection, opener: Callable[[], AbstractContextManager[Any]], work: Callable[[Any, Any], Any]
) -> None:
    """The main function of a worker. It ignores Ctrl-C, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        with opener() as resource:
            while (job := pipe.recv()) is not None:
                pipe.send(("done", _done(work, resource, job)))
    except (EOFError, BrokenPipeError):
        return
    except HipwrightError as error:
        pipe.send(("closed", _picklable(error)))


def _done(work: Callable[[Any, Any], Any], resource: Any, job: Any) -> Any:
    try:
        return work(resource, job)
    except HipwrightError as error:
        return _picklable(error)
    except Exception as error:  # a bug: reported as the result of its job
        return HipwrightError(f"{type(error).__name__}: {error}")


def _picklable(error: HipwrightError) -> HipwrightError:
    """The error as a class that can be pickled: constructors of some classes take other arguments."""
    kinds = {"task": TaskError, "candidate": CandidateError, "toolchain": ToolchainError, "device": DeviceError}
    kind = kinds.get(error.fault, WorkerError if isinstance(error, InfrastructureError) else HipwrightError)
    return kind(error.message, hint=error.hint, status=error.status, stage=error.stage)


def _exit_with_parent() -> None:
    """End this process when the parent ends; the processes that it started end with it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
