"""A limit on the processor time of a trace. Runs in the task host.

Sizes that a trace combines again and again (the windows of a shifted-window transformer) become expressions that take
sympy minutes; the same module with fewer free sizes is traced in seconds.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 25.0
"""Processor time of a trace with every size free."""


class TraceTooLong(BaseException):
    """The limit is over; no `except Exception` on the way takes it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TraceTooLong in the block after so much processor time; no limit outside the main thread, or for 0."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise TraceTooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)  # again, where something on the way takes it all the same
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
