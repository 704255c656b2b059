"""Schedules one GPU: verifications run concurrently, timings run exclusively, one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from hipwright.errors import WorkerError
from hipwright.evaluation.gpu.timing_lock import TimingLock

T = TypeVar("T")


class TimingQueue:
    """A thread that runs timings in batches, and the lock that excludes verifications meanwhile.

    batch: programs ready to be timed that start a batch. patience_s: a program that has waited this long starts one
    too.
    """

    def __init__(self, batch: int, patience_s: float) -> None:
        self._batch, self._patience_s = batch, patience_s
        self._lock, self._callers = TimingLock(), TimingLock()
        self._changed = threading.Condition()
        self._ready: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._verifying = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="timing", daemon=True)
        self._thread.start()

    def shared(self) -> AbstractContextManager[None]:
        """A context in which no timing runs."""
        return self._lock.shared()

    def callers_work(self) -> AbstractContextManager[None]:
        """A context in which no timing runs, for the caller's own work, which may take long."""
        return self._callers.shared()

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """A context after which a program may be ready to be timed: a batch waits for it."""
        with self._changed:
            self._verifying += 1
        try:
            yield
        finally:
            with self._changed:
                self._verifying -= 1
                self._changed.notify_all()

    def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, which runs alone. Raises WorkerError where the queue is closed before its turn."""
        answer: Future[T] = Future()
        with self._changed:
            self._ready.append((work, answer))
            self._changed.notify_all()
            if self._stopping:
                self._refuse_all()
        return answer.result()

    def close(self) -> None:
        """Accepts no more timings; waits for the one that runs."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._stopping)
                self._changed.wait_for(
                    lambda: len(self._ready) >= self._batch or not self._verifying or self._stopping, self._patience_s
                )
                if self._stopping:
                    return self._refuse_all()
            # verifications continue while a timing waits for a caller's own work
            with self._callers.exclusive(), self._lock.exclusive():
                while (item := self._next()) is not None:
                    work, answer = item
                    try:
                        answer.set_result(work())
                    except BaseException as error:
                        answer.set_exception(error)

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._changed:
            return self._ready.popleft() if self._ready and not self._stopping else None

    def _refuse_all(self) -> None:
        while self._ready:
            self._ready.popleft()[1].set_exception(WorkerError("the judge is closed"))
