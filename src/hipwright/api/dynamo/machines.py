"""The machine that judges the graphs of one process, kept while graphs come and for a while after."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hipwright.errors import BadInput, TaskError
from hipwright.machine import Machine, machine

IDLE_S = 30.0
"""Seconds without a search after which the processes end, which on a GPU hold memory."""


class KeptMachine:
    """One machine of one set of targets at a time. For several threads; `use` is for one at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stack = ExitStack()
        self._found: tuple[tuple[str, ...], bool, Machine] | None = None
        self._timer: threading.Timer | None = None
        atexit.register(self.close)

    @contextmanager
    def use(self, targets: tuple[str, ...], *, unsafe: bool) -> Iterator[Machine]:
        """The machine of these targets; it ends IDLE_S seconds after its last use."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._found is None or self._found[:2] != (targets, unsafe):
                self.close()
                self._found = targets, unsafe, self._stack.enter_context(machine(targets, unsafe=unsafe))
            try:
                yield self._found[2]
            except (TaskError, BadInput):  # the graph's fault: the processes are sound
                raise
            except BaseException:
                self.close()
                raise
            finally:
                self._timer = threading.Timer(IDLE_S, self.close)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Ends the processes."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._found = None
            self._stack.close()


KEPT = KeptMachine()
