"""The lock of one GPU: one timing alone, or several verifications together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hipwright.evaluation.gpu.waits import WAITS


class TimingLock:
    """A readers-writer lock of one GPU: timings are exclusive, all other work is shared.

    A timing waits for the work inside and keeps new work out, so new work never delays it. Not reentrant. Compiling a
    baseline is no such work, unless it is tuned on the GPU: it takes the processor for seconds.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._timing = False
        self._waiting = 0
        self._own = threading.local()

    @contextmanager
    def shared(self, *, gives_way: bool = False) -> Iterator[None]:
        """A context for work that may overlap with other such work but not with a timing.

        gives_way: a timing that waits need not wait for all of it (`give_way`). Not for work that holds, between two
        calls, a process that a timing may need.
        """
        with self._changed:
            self._enter()
        self._own.gives_way = gives_way
        try:
            yield
        finally:
            self._own.gives_way = False
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def give_way(self) -> None:
        """Called between two calls of processes: lets the timings go first that wait for this thread's work.

        Returns at once outside work that gives way.
        """
        if not self._waiting or not getattr(self._own, "gives_way", False):
            return
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()
            try:
                self._enter()
            except BaseException:
                self._inside += 1  # which the block's end takes off
                raise

    def _enter(self) -> None:
        with WAITS.waiting():
            self._changed.wait_for(lambda: not self._timing and not self._waiting)
        self._inside += 1

    def _count_waiting(self, more: int) -> None:
        self._waiting += more

    @property
    def timing(self) -> bool:
        """Whether somebody has the GPU alone now."""
        return self._timing

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """A context for a timing: no other work of hipwright runs on this GPU meanwhile."""
        with self._changed:
            self._count_waiting(1)
            try:
                with WAITS.waiting():
                    self._changed.wait_for(lambda: not self._timing and not self._inside)
            finally:
                self._count_waiting(-1)
            self._timing = True
        try:
            yield
        finally:
            with self._changed:
                self._timing = False
                self._changed.notify_all()
