"""Whose turn a GPU is: programs are verified side by side, and those that wait for the clock are timed one by one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from hipwright.errors import WorkerError
from hipwright.evaluation.gate import Gate

T = TypeVar("T")


class Turns:
    """The thread that times, and the gate that keeps verifications out.

    wave: programs ready to be timed that start it. patience_s: one that waits so long starts it too.
    """

    def __init__(self, wave: int, patience_s: float) -> None:
        self._wave, self._patience_s = wave, patience_s
        self._gate, self._callers = Gate(), Gate()
        self._changed = threading.Condition()
        self._ready: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._verifying = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="timing", daemon=True)
        self._thread.start()

    def shared(self) -> AbstractContextManager[None]:
        """Outside of timings."""
        return self._gate.shared()

    def sharing(self) -> AbstractContextManager[None]:
        """Outside of timings, for work of the caller's own, which may last."""
        return self._callers.shared()

    @contextmanager
    def verifying(self) -> Iterator[None]:
        """While a program may soon be ready to be timed."""
        with self._changed:
            self._verifying += 1
        try:
            yield
        finally:
            with self._changed:
                self._verifying -= 1
                self._changed.notify_all()

    def run(self, work: Callable[[], T]) -> T:
        """What `work` gives, done alone. WorkerError where the turns end before its own."""
        answer: Future[T] = Future()
        with self._changed:
            self._ready.append((work, answer))
            self._changed.notify_all()
            if self._stopping:
                self._give_up()
        return answer.result()

    def close(self) -> None:
        """Time nothing more; waits for the one under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._stopping)
                self._changed.wait_for(
                    lambda: len(self._ready) >= self._wave or not self._verifying or self._stopping, self._patience_s
                )
                if self._stopping:
                    return self._give_up()
            # verifications go on while a caller's own work is waited for
            with self._callers.exclusive(), self._gate.exclusive():
                while (item := self._next()) is not None:
                    work, answer = item
                    try:
                        answer.set_result(work())
                    except BaseException as error:
                        answer.set_exception(error)

    def _next(self) -> tuple[Callable[[], Any], Future[Any]] | None:
        with self._changed:
            return self._ready.popleft() if self._ready and not self._stopping else None

    def _give_up(self) -> None:
        while self._ready:
            self._ready.popleft()[1].set_exception(WorkerError("the judge is closed"))
