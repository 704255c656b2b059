"""A service of its own process whose judge takes as long as a program says; at its end it prints how many."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from hipwright.records import Evaluation, Program
from hipwright.train.judging.serve import app
from hipwright.train.records import TrainingProblem
from hipwright.train.service.front import ServiceFront
from hipwright.train.service.limits import ServiceLimits
from hipwright.train.service.server import ServiceServer


class WaitingJudge:
    """A judge of `workers` threads. A program's text is the seconds that it takes."""

    device, clock = "none", ""

    def __init__(self, workers: int) -> None:
        self._pool, self._lock, self.asked = ThreadPoolExecutor(workers), Lock(), 0

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        """The future evaluation."""
        with self._lock:
            self.asked += 1
        return self._pool.submit(self._judged, problem, program)

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        """Nothing is opened."""

    def _judged(self, problem: TrainingProblem, program: Program) -> Evaluation:
        time.sleep(float(program.text.split()[0]))
        return Evaluation(task=problem.key, program=program.key, status="pass")


def main() -> None:
    """Serves at the port of the first argument until SIGTERM. Then: a token, threads, limits as JSON."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the server handles it first, and raises it again when it is done
    port, token, workers, limits = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), ServiceLimits.from_json(sys.argv[4])
    judge = WaitingJudge(workers)
    server = ServiceServer(ServiceFront(app(judge), limits, token), "127.0.0.1", port)  # type: ignore[arg-type]
    try:
        server.run()
    finally:
        print(judge.asked, flush=True)


if __name__ == "__main__":
    main()
