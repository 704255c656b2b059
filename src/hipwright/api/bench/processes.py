"""Workers of a benchmark in processes of their own: one interpreter writes and judges for two workers, not for all.

A network takes an interpreter ten seconds and more to write and to judge; eight workers in one process wait for each
other. Each process has its own compilers, task hosts and candidates; those of one GPU share its timing lock and its
memory, which this process keeps (`evaluation/gpu/shared_gpu.py`).
"""

from __future__ import annotations

import itertools
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from hipwright.api.bench.driver import BenchWorker, WorkerPlan
from hipwright.api.bench.orders import plain_entry, settings_of
from hipwright.api.bench.plan import BenchRequest
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import HipwrightError, WorkerError
from hipwright.evaluation.bench import BenchRow
from hipwright.evaluation.gpu.shared_gpu import GpuVisitor, SharedGpu
from hipwright.evaluation.gpu.waits import WAITS
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.events import doing
from hipwright.fleet.records import OrderError
from hipwright.fleet.wire import Wire
from hipwright.machine import machine
from hipwright.sandbox import Lender

END_S = 10.0
MODULE = "hipwright.api.bench.worker_process"


class WorkerProcess:
    """One process, started with its first call and again after its end. Safe to use from several threads.

    setup: of its `Judging`. gpu: that it shares with others, None for one of its own or none. lender: of its zygotes.
    """

    def __init__(self, name: str, setup: Mapping[str, Any], gpu: SharedGpu | None, lender: Lender) -> None:
        self.name = name
        self._setup, self._gpu, self._lender = dict(setup), gpu, lender
        self._lock, self._numbers = threading.Lock(), itertools.count()
        self._life: _Life | None = None
        self.lives = 0

    def call(self, what: str, worker: int, job: EvaluationJob) -> Any:
        """What the process answers; the time that it waits is waited by this thread too.

        Raises the job's error, and WorkerError where the process has ended.
        """
        with self._lock:
            if self._life is None or self._life.ended:
                if self._life is not None:
                    self._life.close()
                self._life, self.lives = _Life(self._setup, self._gpu, self._lender), self.lives + 1
            life = self._life
        plain = {"key": job.key, "group": job.group, "entry": plain_entry(job.payload)}
        before = WAITS.seconds()
        for answer in life.answers({"type": "job", "what": what, "worker": worker, "id": next(self._numbers), **plain}):
            WAITS.told(before + answer.get("waited", 0.0))
            if answer["type"] == "error":
                raise OrderError.from_dict(answer["error"]).error()
            if answer["type"] == "done":
                return answer["value"]
        raise WorkerError(f"{self.name} has ended: {life.last_word()}")

    def tell(self, worker: int, what: str) -> None:
        """Says something that has no answer, where it runs."""
        if (life := self._life) is not None:
            life.send({"type": "job", "what": what, "worker": worker})

    def kill(self) -> None:
        """Ends it at once: its calls raise."""
        if (life := self._life) is not None:
            life.kill()

    def close(self) -> None:
        """Lets it end its own processes, for END_S at the most."""
        if (life := self._life) is not None:
            life.close()


class _Life:
    """A process from its start to its end."""

    def __init__(self, setup: dict[str, Any], gpu: SharedGpu | None, lender: Lender) -> None:
        ours, theirs = socket.socketpair()
        page = gpu.lock.fd if gpu is not None else None
        loans = lender.lend()
        numbers = {name: loan.fileno() for name, loan in loans.items()}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at its end
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs.fileno())],
            pass_fds=[theirs.fileno(), *([page] if page is not None else []), *numbers.values()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is the command's, which ends this process
        )
        for given in (theirs, *loans.values()):
            given.close()
        self._wire, self._lock, self.ended = Wire(ours), threading.Lock(), False
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._visitor = GpuVisitor(gpu, self._wire.send) if gpu is not None else None
        self.send({**setup, "page": page, "loans": numbers})
        self._reader = threading.Thread(target=self._read, name="worker process", daemon=True)
        self._reader.start()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; where the process has ended, its calls say so."""
        with suppress(OSError):
            self._wire.send(message)

    def answers(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The answers to a call, until the process ends."""
        heard: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        with self._lock:
            if self.ended:
                return
            self._waiting[message["id"]] = heard
        self.send(message)
        try:
            while (answer := heard.get()) is not None:
                yield answer
        finally:
            with self._lock:
                self._waiting.pop(message["id"], None)

    def _read(self) -> None:
        with suppress(EOFError, OSError, ValueError):  # it has ended, or was closed here
            while True:
                message = self._wire.receive(60.0)
                if message is None:
                    continue
                if message["type"] == "doing":
                    doing(message["text"])
                elif message["type"] == "gpu" and self._visitor is not None:
                    self._visitor.take(message)
                elif (waiting := self._waiting.get(message.get("id", -1))) is not None:
                    waiting.put(message)
        with self._lock:
            self.ended, waiting_all = True, list(self._waiting.values())
        if self._visitor is not None:
            self._visitor.end()
        for heard in waiting_all:
            heard.put(None)

    def last_word(self) -> str:
        """The last line that it wrote, or its exit code."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        with suppress(ValueError, OSError):  # closed
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4000))
            lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
            if lines:
                return lines[-1][:300]
        return f"exit code {self._process.poll()}"

    def kill(self) -> None:
        """SIGKILL; its own processes end with it."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends it."""
        self._wire.shut()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        self._wire.close()
        self._log.close()


class ProcessWorker(BenchWorker):
    """A worker whose work a process does. number: its own among those of the process."""

    def __init__(self, name: str, process: WorkerProcess, number: int) -> None:
        super().__init__(name)
        self.process, self._number, self._life = process, number, 0

    def prepare(self, job: EvaluationJob) -> None:
        """As of BenchWorker; a process that has ended since has nothing open."""
        if self._life != self.process.lives:
            self._group = None
        super().prepare(job)

    def open_task(self, job: EvaluationJob) -> None:
        """As of BenchWorker, in the process."""
        self._group = None
        self.process.call("open", self._number, job)
        self._group, self._life = job.group, self.process.lives

    def value(self, job: EvaluationJob, built: Any) -> Any:
        """As of BenchWorker, in the process."""
        return BenchRow.from_dict(self.process.call("evaluate", self._number, job))

    def abort(self) -> None:
        """Ends the process, whose other workers try their jobs again."""
        self._stopping.set()
        self.process.kill()

    def close(self) -> None:
        """Closes the task."""
        if self._group is not None:
            self._group = None
            self.process.tell(self._number, "close")


@contextmanager
def open_process_workers(plan: WorkerPlan, request: BenchRequest) -> Iterator[list[ProcessWorker]]:
    """Workers in processes, of this plan. The processes end with the block."""
    counts = plan.shares
    compilers = max(2, ((os.cpu_count() or 2) - 4) // (len(counts) * max(1, len(plan.gpus))))
    setup = {
        "settings": settings_of(request),
        "out": str(request.out.absolute()) if request.out is not None else None,
        "baseline_s": plan.baseline_s,
        "compilers": compilers,
    }
    with ExitStack() as stack:
        workers: list[ProcessWorker] = []
        places: list[GpuInfo | None] = [*plan.gpus] or [None]
        for gpu in places:
            shared = SharedGpu(gpu.memory_bytes) if gpu is not None and len(counts) > 1 else None
            if shared is not None:
                stack.callback(shared.lock.close)
            where = f"{gpu.kind} {gpu.index}" if gpu is not None else "cpu"
            numbers = itertools.count()
            lender = stack.enter_context(_lending(plan, gpu, len(counts)))
            for process_number, count in enumerate(counts):
                own = {**setup, "gpu": gpu.to_dict() if gpu is not None else None, "workers": count}
                process = WorkerProcess(f"process {process_number} of {where}", own, shared, lender)
                stack.callback(process.close)
                names = [f"{where} worker {next(numbers)}" for _ in range(count)]
                workers += [ProcessWorker(name, process, number) for number, name in enumerate(names)]
        yield workers


@contextmanager
def _lending(plan: WorkerPlan, gpu: GpuInfo | None, borrowers: int) -> Iterator[Lender]:
    """The zygotes that the processes of one GPU use, or all where none is used; they end with the block."""
    lender = Lender(borrowers)
    index = gpu.index if gpu is not None else None
    with machine(plan.targets, unsafe=plan.unsafe, gpu=index, imported=plan.imported, zygotes=lender) as lent:
        lent.host.start()
        yield lender


def build_in_turn(workers: Sequence[ProcessWorker]) -> Callable[[EvaluationJob], Any]:
    """Compiles a job's program for the GPUs, which are alike, in one process after the other; gives the program, None
    where a search has to find one. Its errors are ignored here; they occur again in the evaluation."""
    turns = itertools.cycle({worker.process.name: worker.process for worker in workers}.values())
    lock = threading.Lock()

    def build(job: EvaluationJob) -> Any:
        if job.payload.program is not None:
            with lock:
                process = next(turns)
            with suppress(HipwrightError):
                process.call("build", 0, job)
        return job.payload.program

    return build
