"""Candidate processes that are started ahead, so that one that breaks is replaced at once. No torch.

A process takes a second or more until it may use a GPU that others use too, and of a batch of a model's answers, or of
mutants, several crash it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from hipwright.errors import HipwrightError
from hipwright.sandbox import Session


class Standby:
    """At most `count` processes beside those in use, all alike. Safe to use from several threads.

    start: makes one. around: what each start in the background runs in. The first ones are started once somebody has
    taken one.
    """

    def __init__(
        self,
        start: Callable[[], Session],
        count: int,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._start, self._count, self._around = start, count, around
        self._changed = threading.Condition()
        self._ready: deque[Session] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def ready(self) -> int:
        """How many wait."""
        return len(self._ready)

    def take(self) -> Session:
        """One that waits and still runs, else a new one. Raises what starting it raises."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._fill, name="standby", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            while self._ready:
                session = self._ready.popleft()
                if session.running:
                    return session
                session.close()
        return self._start()

    def close(self) -> None:
        """End those that wait, and start no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        while self._ready:
            self._ready.popleft().close()

    def _fill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or len(self._ready) < self._count)
            if self._closed:
                return
            try:
                with self._around():
                    if self._closed:
                        return
                    session = self._start()
            except HipwrightError:  # whoever takes one next is told
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, timeout=1.0)
                continue
            with self._changed:
                self._ready.append(session)
