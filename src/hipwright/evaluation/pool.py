"""Runs many evaluations on several GPUs at once.

Builds run on the CPU ahead of the GPUs. Each GPU evaluates one job after the other. After a fault of the machine a job
is retried on another GPU; a GPU with MAX_FAULTS such faults in a row is removed; one that hangs is aborted. Does not
import torch or access a GPU: `build` and the `PoolDevice`s do the work.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hipwright.errors import DeviceError, InfrastructureError
from hipwright.evaluation.gpu.waits import WAITS
from hipwright.evaluation.schedule import EvaluationJob, JobQueue

POLL_S = 0.1  # between two checks for hanging devices
MAX_FAULTS = 3  # faults of the machine in a row, in different jobs, after which a device is removed


class PoolDevice(Protocol):
    """One GPU, or a substitute in tests. All methods but `abort` are called from the device's own thread.

    A fault of the machine is raised as InfrastructureError and retried elsewhere; any other exception is final. A
    candidate that fails is a result, not an exception.
    """

    name: str

    def prepare(self, job: EvaluationJob) -> None:
        """Opens the reference of job.group on this device; returns quickly if it is open."""

    def evaluate(self, job: EvaluationJob, built: Any) -> Any:
        """The job's result. built: as `build` returned it."""

    def abort(self) -> None:
        """Called from another thread: ends what runs on the device, so that a call that hangs raises."""


@dataclass
class JobOutcome:
    """How one job ended: its value, or the error that ended it.

    seconds: spent in "build", "prepare" and "evaluate". waited: beside them, for a turn on the device.
    """

    job: EvaluationJob
    value: Any = None
    error: Exception | None = None
    device: str = ""
    attempts: int = 1
    seconds: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0


Listener = Callable[[str, dict[str, Any]], None]


@dataclass
class _DeviceThread:
    """The thread of one device, with what it does and since when."""

    device: PoolDevice
    job: EvaluationJob | None = None
    built: Any = None
    since: float = 0.0
    thread: int = 0
    aborted: bool = False
    abandoned: bool = False


class Dispatcher:
    """Runs jobs: `build` on build_workers threads, the rest on the devices. Used once.

    hang_s: the longest that a job may take on a device, without its waits, before it is aborted; after as long again
    the device is removed.
    attempts: of one job that meets faults of the machine.
    """

    def __init__(
        self,
        devices: Sequence[PoolDevice],
        build: Callable[[EvaluationJob], Any],
        *,
        build_workers: int = 2,
        attempts: int = 3,
        hang_s: float = 600.0,
        listener: Listener | None = None,
    ) -> None:
        self._devices = list(devices)
        self._build = build
        self._build_workers = build_workers
        self._attempts = attempts
        self._hang_s = hang_s
        self._listener = listener or (lambda kind, data: None)
        self._changed = threading.Condition()
        self._outcomes: queue.Queue[JobOutcome] = queue.Queue()
        self._tries: dict[str, JobOutcome] = {}
        self._faults: dict[str, set[str]] = {device.name: set() for device in devices}
        self._alive = [device.name for device in devices]
        self._stopping, self._cancelled = False, False
        self._queue = JobQueue([], 1)
        self._threads: list[_DeviceThread] = []

    def run(
        self,
        jobs: Sequence[EvaluationJob],
        on_done: Callable[[JobOutcome], None] | None = None,
        *,
        until: float | None = None,
    ) -> list[JobOutcome]:
        """The outcomes of the jobs, in their order. on_done is called with each as soon as it is there, in this thread.

        until: a time.monotonic() after which unfinished jobs are aborted and have no outcome. On Ctrl-C finished jobs
        are delivered, the devices are stopped and KeyboardInterrupt is raised.
        """
        if len({job.key for job in jobs}) != len(jobs):
            raise ValueError("two jobs have the same key")
        self._tries = {job.key: JobOutcome(job, attempts=0) for job in jobs}
        count = len(self._devices)
        self._queue = JobQueue(jobs, self._build_workers + 2 * max(1, count), count)
        self._start()
        done: dict[str, JobOutcome] = {}
        try:
            while len(done) < len(jobs) and (until is None or time.monotonic() < until):
                self._collect(done, on_done)
        except KeyboardInterrupt:
            self.cancel()
            while not self._outcomes.empty():
                self._deliver(self._outcomes.get_nowait(), done, on_done)
            raise
        finally:
            self.cancel()
        return [done[job.key] for job in jobs if job.key in done]

    def cancel(self) -> None:
        """Starts nothing more, and aborts what runs on the devices."""
        with self._changed:
            self._stopping, self._cancelled = True, True
            busy = [own.device for own in self._threads if own.job is not None]
            self._changed.notify_all()
        for device in busy:
            with contextlib.suppress(Exception):
                device.abort()

    # ---------------------------------------------------------------- the caller's thread

    def _start(self) -> None:
        self._threads = [_DeviceThread(device) for device in self._devices]
        for number in range(self._build_workers):
            threading.Thread(target=self._build_loop, name=f"build {number}", daemon=True).start()
        for own in self._threads:
            threading.Thread(target=self._device_loop, args=(own,), name=own.device.name, daemon=True).start()

    def _collect(self, done: dict[str, JobOutcome], on_done: Callable[[JobOutcome], None] | None) -> None:
        try:
            self._deliver(self._outcomes.get(timeout=POLL_S), done, on_done)
        except queue.Empty:
            self._look_for_hangs()
            if not self._alive:
                self._give_up()

    def _deliver(
        self, outcome: JobOutcome, done: dict[str, JobOutcome], on_done: Callable[[JobOutcome], None] | None
    ) -> None:
        if outcome.job.key in done:
            return  # a device that was removed for hanging has returned after all
        done[outcome.job.key] = outcome
        if on_done is not None:
            on_done(outcome)
        self._listener("done", {"job": outcome.job.key, "device": outcome.device, "done": len(done)})

    def _give_up(self) -> None:
        """Fails the jobs that need a device, as none is left."""
        with self._changed:
            rest, self._stopping = self._queue.remaining(), True
            self._changed.notify_all()
        for job in rest:
            self._finish(job, error=DeviceError("no device is left to run on", hint="see the device's faults above"))

    def _look_for_hangs(self) -> None:
        now = time.monotonic()
        for own in self._threads:
            job, busy = own.job, now - own.since - WAITS.seconds(own.thread)
            if job is None or own.abandoned or busy <= self._hang_s:
                continue
            if not own.aborted:
                own.aborted = True
                self._listener("hang", {"job": job.key, "device": own.device.name, "seconds": busy})
                threading.Thread(target=_quiet(own.device.abort), daemon=True).start()
            elif busy > 2 * self._hang_s + 1.0:
                own.abandoned = True
                self._lose(own.device, "it hangs and cannot be aborted")
                self._again_or_fail(job, own.built, own.device, DeviceError(f"{own.device.name} hangs"))

    # ---------------------------------------------------------------- the other threads

    def _build_loop(self) -> None:
        while (job := self._wait_for(self._queue.next_build)) is not None:
            begin = time.monotonic()
            try:
                built = self._build(job)
            except Exception as error:
                self._build_failed(job, error)
                continue
            self._spent(job, "build", begin)
            self._queue.build_s.add(time.monotonic() - begin)
            with self._changed:
                self._queue.built(job, built)
                self._changed.notify_all()

    def _build_failed(self, job: EvaluationJob, error: Exception) -> None:
        again = self._may_retry(job, error)
        with self._changed:
            self._queue.build_failed(job, again=again)
            self._changed.notify_all()
        if not again:
            self._finish(job, error=error)

    def _device_loop(self, own: _DeviceThread) -> None:
        device = own.device
        while (found := self._wait_for(lambda: self._take(device))) is not None:
            job, built = found
            WAITS.restart()
            own.job, own.built, own.since, own.aborted = job, built, time.monotonic(), False
            own.thread = threading.get_ident()
            try:
                value = self._on_device(device, job, built)
            except Exception as error:
                own.job = None
                if own.abandoned:
                    return
                self._device_failed(device, job, built, error)
                continue
            own.job = None
            if own.abandoned:
                return
            self._faults[device.name].clear()
            self._finish(job, value=value, device=device.name)

    def _take(self, device: PoolDevice) -> tuple[EvaluationJob, Any] | None:
        return self._queue.next_job(device.name, self._alive) if device.name in self._alive else None

    def _on_device(self, device: PoolDevice, job: EvaluationJob, built: Any) -> Any:
        begin, before = time.monotonic(), WAITS.seconds()
        device.prepare(job)
        prepare = self._spent(job, "prepare", begin, before)
        begin, before = time.monotonic(), WAITS.seconds()
        value = device.evaluate(job, built)
        self._queue.spent(device.name, prepare, self._spent(job, "evaluate", begin, before))
        return value

    def _wait_for(self, ask: Callable[[], Any]) -> Any:
        """The first result of `ask` that is not None; None when the run ends."""
        with self._changed:
            while not self._stopping:
                if (found := ask()) is not None:
                    self._changed.notify_all()  # one taken job allows one more to be built
                    return found
                self._changed.wait()
        return None

    # ---------------------------------------------------------------- faults

    def _device_failed(self, device: PoolDevice, job: EvaluationJob, built: Any, error: Exception) -> None:
        if isinstance(error, InfrastructureError):
            self._faults[device.name].add(job.key)
            if len(self._faults[device.name]) >= MAX_FAULTS:
                self._lose(device, f"{MAX_FAULTS} jobs in a row met a fault: {error}")
        self._again_or_fail(job, built, device, error)

    def _again_or_fail(self, job: EvaluationJob, built: Any, device: PoolDevice, error: Exception) -> None:
        if not self._may_retry(job, error):
            self._finish(job, error=error, device=device.name)
            return
        with self._changed:
            self._queue.give_back(job, built, device.name)
            self._changed.notify_all()

    def _may_retry(self, job: EvaluationJob, error: Exception) -> bool:
        """Counts an attempt. True if the fault is the machine's and attempts are left."""
        outcome = self._tries[job.key]
        outcome.attempts += 1
        again = isinstance(error, InfrastructureError) and outcome.attempts < self._attempts and not self._stopping
        if again:
            self._listener("retry", {"job": job.key, "error": str(error), "attempt": outcome.attempts})
        return again

    def _lose(self, device: PoolDevice, why: str) -> None:
        with self._changed:
            if device.name not in self._alive:
                return
            self._alive = [name for name in self._alive if name != device.name]
            self._queue.lost(device.name)
            self._changed.notify_all()
        self._listener("device_lost", {"device": device.name, "why": why})

    def _finish(
        self, job: EvaluationJob, *, value: Any = None, error: Exception | None = None, device: str = ""
    ) -> None:
        if error is not None and self._cancelled:
            return  # it was aborted, and is judged another time
        outcome = self._tries[job.key]
        tries = outcome.attempts + (1 if error is None else 0)
        self._outcomes.put(JobOutcome(job, value, error, device, max(1, tries), dict(outcome.seconds), outcome.waited))

    def _spent(self, job: EvaluationJob, stage: str, begin: float, before: float = 0.0) -> float:
        """Notes the seconds since `begin`, when the thread had waited `before`, without those that it waited since."""
        waited = WAITS.seconds() - before
        seconds = time.monotonic() - begin - waited
        tried = self._tries[job.key]
        tried.seconds[stage] = tried.seconds.get(stage, 0.0) + seconds
        tried.waited += waited
        return seconds


def _quiet(call: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with contextlib.suppress(Exception):
            call()

    return run
