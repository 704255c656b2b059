"""A process that judges rows of a benchmark: `python -m hipwright.api.bench.worker_process FD`, of `processes.py`.

It ends when the command does, or closes the socket.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hipwright.api.bench.candidates import CandidateMeasurement, bench_archive, build_ahead
from hipwright.api.bench.driver import TaskWorker, WorkerPlan, open_workers
from hipwright.api.bench.orders import job_of, request_of
from hipwright.device.gpu_info import GpuInfo
from hipwright.evaluation.gpu.visiting import GpuLine, VisitorLock, VisitorMemory
from hipwright.evaluation.gpu.waits import WAITS
from hipwright.events import observed
from hipwright.fleet.records import OrderError
from hipwright.fleet.wire import Wire
from hipwright.sandbox import Borrower

TELL_S = 2.0
"""Between two words about how long a job has waited for its turn on the GPU."""


class Judging:
    """The workers of this process, each in a thread of its own. setup: of `open_process_workers`, with "page": the
    descriptor of a GPU's page where the command keeps its lock, else None, and "loans": of `Borrower`."""

    def __init__(self, wire: Wire, setup: dict[str, Any]) -> None:
        self._wire, self._setup, self._lock = wire, setup, threading.Lock()
        self.line = GpuLine(wire.send, setup["page"]) if setup["page"] is not None else None
        self._stack, self._zygotes = ExitStack(), Borrower(setup["loans"])
        self._workers: list[TaskWorker] = []
        self._jobs = [queue.SimpleQueue[dict[str, Any] | None]() for _ in range(setup["workers"])]
        self._busy: dict[int, int] = {}  # the thread that does a call
        self._threads = [threading.Thread(target=self._work, args=(number,)) for number in range(setup["workers"])]
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._tell_waits, name="waits", daemon=True).start()

    def tell_doing(self, text: str, done: int, total: int) -> None:
        """What a worker does, for the command's display; rows are what is counted there."""
        with suppress(OSError):
            self._wire.send({"type": "doing", "text": text})

    def take(self, message: dict[str, Any]) -> None:
        """A message of the command; returns at once."""
        if message["type"] == "gpu":
            assert self.line is not None
            self.line.take(message)
        elif message["what"] == "build":
            threading.Thread(target=self._answer, args=(message,), name="build", daemon=True).start()
        else:
            self._jobs[message["worker"]].put(message)

    def close(self) -> None:
        """Ends what the process started. The command has gone, or wants no more."""
        if self.line is not None:
            self.line.end()
        for worker in self._workers:
            with suppress(Exception):
                worker.abort()
        for jobs in self._jobs:
            jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._stack.close()

    def _opened(self) -> list[TaskWorker]:
        """The workers, once the first job has come."""
        with self._lock:
            if not self._workers:
                setup = self._setup
                request = request_of(setup["settings"], Path(setup["out"]) if setup["out"] else None)
                gpus = (GpuInfo.from_dict(setup["gpu"]),) if setup["gpu"] else ()
                plan = WorkerPlan(
                    request.targets,
                    gpus,
                    setup["workers"],
                    setup["workers"],
                    request.unsafe,
                    setup["baseline_s"],
                    request.baselines,
                    request.imported,
                    setup["compilers"],
                    zygotes=self._zygotes,
                )
                measurement = CandidateMeasurement(request, self._stack.enter_context(bench_archive(request)))
                opening = open_workers(plan, measurement, seed=request.seed)
                workers = self._stack.enter_context(opening)
                if self.line is not None:
                    self._share(workers[0], self.line)
                self._workers = workers
            return self._workers

    def _share(self, worker: TaskWorker, line: GpuLine) -> None:
        """The GPU's lock and memory are the command's."""
        for context in worker.machine.gpus.values():
            context.timing_lock = VisitorLock(line)
            if context.memory is not None:
                context.memory = VisitorMemory(line, self._setup["gpu"]["memory_bytes"])

    def _work(self, number: int) -> None:
        while (message := self._jobs[number].get()) is not None:
            if message["what"] == "close":
                with suppress(Exception):
                    self._opened()[number].close()
            else:
                self._answer(message)

    def _answer(self, message: dict[str, Any]) -> None:
        call = message["id"]
        WAITS.restart()
        self._busy[call] = threading.get_ident()
        try:
            told: dict[str, Any] = {"type": "done", "value": self._done(message)}
        except Exception as error:
            told = {"type": "error", "error": OrderError.of(error).to_dict()}
        del self._busy[call]
        with suppress(OSError):  # the command has ended
            self._wire.send({**told, "id": call, "waited": WAITS.seconds()})

    def _done(self, message: dict[str, Any]) -> Any:
        worker = self._opened()[message["worker"]]
        job = job_of(message["key"], message["group"], message["entry"])
        if message["what"] == "build":
            build_ahead(worker.machine, job)
            return None
        if message["what"] == "open":
            worker.open_task(job)
            return None
        return worker.value(job, job.payload.program).to_dict()  # the command keeps the turns

    def _tell_waits(self) -> None:
        while True:
            time.sleep(TELL_S)
            for call, thread in list(self._busy.items()):
                with suppress(OSError):
                    self._wire.send({"type": "waited", "id": call, "waited": WAITS.seconds(thread)})


def _serve(wire: Wire, judging: Judging) -> None:
    with suppress(EOFError):
        while True:
            if (message := wire.receive(60.0)) is not None:
                judging.take(message)


def main() -> None:
    """Judges until the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    wire = Wire(socket.socket(fileno=int(sys.argv[1])))
    with suppress(EOFError):
        while (setup := wire.receive(60.0)) is None:
            pass
        judging = Judging(wire, setup)
        with observed(judging.tell_doing):
            _serve(wire, judging)
        judging.close()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
