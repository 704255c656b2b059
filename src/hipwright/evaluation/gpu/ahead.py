"""Processes of one GPU that are started before a task needs them: candidate workers and device hosts.

A process on a GPU takes seconds to start, and a task has four: two hosts, a worker, and a fresh worker that times the
winner again. While the tasks before it are judged, those of the next ones start.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from hipwright.sandbox import Zygote
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.hosts.ready_hosts import ReadyHosts
from hipwright.verify.gpu.reference import LIMITS
from hipwright.verify.standby import Standby

IDLE_BYTES = 3 << 28
"""Device memory of one idle process: its context and what its libraries take."""


class ProcessesAhead:
    """Keeps `count` idle processes of each kind.

    hosts: the zygote of device hosts; device: torch's name; worker: one like those that are started. around: the
    context of each start in the background, such as one that timings exclude.
    """

    def __init__(
        self,
        hosts: Zygote,
        device: str,
        worker: CandidateWorker,
        count: int,
        around: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.hosts = ReadyHosts(hosts, device, count, LIMITS, around)
        self.workers = Standby(worker.start, count, around)

    @staticmethod
    def nbytes(count: int) -> int:
        """Device memory of all idle processes."""
        return 2 * count * IDLE_BYTES

    def close(self) -> None:
        """Ends the idle processes."""
        self.hosts.close()
        self.workers.close()
