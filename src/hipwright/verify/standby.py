"""Candidate processes that are started ahead, so that a crashed one is replaced at once. Does not import torch.

A process needs a second or more before it can use a shared GPU, and several candidates of a batch of model answers or
mutants crash it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from hipwright.errors import HipwrightError
from hipwright.sandbox import Session


class Standby:
    """Keeps up to `count` idle processes ready. Safe to use from several threads.

    start: starts one. around: the context of each start in the background. The first ones are started after the first
    `take`.
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
        """How many processes are idle and ready."""
        return len(self._ready)

    def take(self) -> Session:
        """An idle process that still runs, else a new one. Raises what starting it raises."""
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
        """Ends the idle processes, and starts no more."""
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
            except HipwrightError:  # the next `take` raises it
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, timeout=1.0)
                continue
            with self._changed:
                self._ready.append(session)
