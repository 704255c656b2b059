"""The lock of one GPU: one timing alone, or several verifications together."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from hipwright.evaluation.gpu.waits import WAITS


class GpuLock(ABC):
    """A readers-writer lock of one GPU: timings are exclusive, all other work is shared.

    A timing waits for the work inside and keeps new work out, so new work never delays it. Not reentrant. Compiling a
    baseline is no such work, unless it is tuned on the GPU: it takes the processor for seconds.
    """

    def __init__(self) -> None:
        self._own = threading.local()

    @contextmanager
    def shared(self, *, gives_way: bool = False) -> Iterator[None]:
        """A context for work that may overlap with other such work but not with a timing.

        gives_way: a timing that waits need not wait for all of it (`give_way`). Not for work that holds, between two
        calls, a process that a timing may need.
        """
        with self._held(gives_way):
            self._own.gives_way = gives_way
            try:
                yield
            finally:
                self._own.gives_way = False

    def give_way(self) -> None:
        """Called between two calls of processes: lets the timings go first that wait for this thread's work.

        Returns at once outside work that gives way.
        """
        if self.timing_waits and getattr(self._own, "gives_way", False):
            self._come_again()

    @property
    @abstractmethod
    def timing_waits(self) -> bool:
        """Whether a timing waits for the work inside."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """A context for a timing: no other work of hipwright runs on this GPU meanwhile."""

    @abstractmethod
    def _held(self, gives_way: bool) -> AbstractContextManager[None]:
        """A context that holds the lock for work."""

    @abstractmethod
    def _come_again(self) -> None:
        """Gives the lock up that this thread's work holds, and takes it again behind the timings that wait."""


class TimingLock(GpuLock):
    """The lock itself, for the threads of this process."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._inside = 0
        self._timing = False
        self._waiting = 0

    @contextmanager
    def _held(self, gives_way: bool) -> Iterator[None]:
        with self._changed:
            self._enter()
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @property
    def timing_waits(self) -> bool:
        """As of GpuLock."""
        return self._waiting > 0

    def _come_again(self) -> None:
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
        """As of GpuLock."""
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
