"""Admission by memory: tasks that share a machine wait until there is room for their bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT_BYTES = 4 << 30
"""The bytes that the tasks measured at a time may move together, unless one is alone: an expectation in float64 takes
many times as much."""


class MemoryQueue:
    """A queue of tasks for `limit` bytes: first come, first admitted."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._changed = threading.Condition()
        self._limit, self._held, self._inside = limit, 0, 0
        self._waiting: deque[object] = deque()

    @contextmanager
    def take(self, bytes_: int) -> Iterator[None]:
        """Holds the bytes; a task that needs more than the limit runs alone."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            self._changed.wait_for(lambda: self._waiting[0] is ticket and self._fits(bytes_))
            self._waiting.popleft()
            self._held, self._inside = self._held + bytes_, self._inside + 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._held, self._inside = self._held - bytes_, self._inside - 1
                self._changed.notify_all()

    def _fits(self, bytes_: int) -> bool:
        return not self._inside or self._held + bytes_ <= self._limit
