"""The time that a thread waits for its turn on a shared GPU, which is no work of the task that it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Waits:
    """Seconds that threads have waited, by thread. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over: dict[int, float] = {}
        self._since: dict[int, float] = {}

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the block's time as waited by this thread, once where blocks are nested."""
        own = threading.get_ident()
        with self._lock:
            outermost = own not in self._since
            if outermost:
                self._since[own] = time.monotonic()
        if not outermost:
            yield
            return
        try:
            yield
        finally:
            with self._lock:
                self._over[own] = self._over.get(own, 0.0) + time.monotonic() - self._since.pop(own)

    def seconds(self, thread: int | None = None) -> float:
        """What a thread has waited since `restart`, up to now. thread: its identifier; None for this one."""
        own = threading.get_ident() if thread is None else thread
        with self._lock:
            since = self._since.get(own)
            return self._over.get(own, 0.0) + (0.0 if since is None else time.monotonic() - since)

    def told(self, seconds: float) -> None:
        """Sets what this thread has waited: it waits for a process that waits itself."""
        with self._lock:
            self._over[threading.get_ident()] = seconds

    def restart(self) -> None:
        """Counts this thread's time from 0."""
        with self._lock:
            self._over.pop(threading.get_ident(), None)


WAITS = Waits()
"""Of this process."""
