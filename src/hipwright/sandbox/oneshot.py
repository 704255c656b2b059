"""Warm zygotes that are used once: host code of a candidate leaves no file, process or memory behind for the next.

A fork of a shared zygote would start faster, but shares its /tmp and process namespace with its neighbours, and a fork
cannot get private ones without privileges. So the slow start (importing torch) happens earlier, in the background.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from hipwright.errors import WorkerError
from hipwright.sandbox.zygote import Zygote


class OneShotPool:
    """Keeps `ready` zygotes started ahead; `take` lends each once. Safe to use from several threads.

    Starting one occupies a core for seconds: a pool larger than one candidate's work can hide disturbs timings.
    """

    def __init__(self, make: Callable[[], Zygote], *, ready: int = 2) -> None:
        self._make = make
        self._ready = ready
        self._lock = threading.Lock()
        self._waiting: deque[Zygote] = deque()
        self._closed = False
        self._fill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def take(self) -> Iterator[Zygote]:
        """The zygote that has waited longest, ended afterwards with all that ran in it; its successor starts now.

        A zygote that failed to start raises at its first session (SandboxMissing, InfrastructureError).
        """
        with self._lock:
            if self._closed:
                raise WorkerError("the pool is closed")
            zygote = self._waiting.popleft()
        self._fill()
        try:
            yield zygote
        finally:
            zygote.close()

    def close(self) -> None:
        """End the waiting zygotes; lent ones end with their `take`."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for zygote in waiting:
            zygote.close()

    def _fill(self) -> None:
        with self._lock:
            while not self._closed and len(self._waiting) < max(1, self._ready):
                zygote = self._make()
                zygote.start()
                self._waiting.append(zygote)
