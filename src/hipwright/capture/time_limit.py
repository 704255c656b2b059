"""A limit on the processor time of a trace. Runs in the task host.

Sizes that a trace combines again and again (the windows of a shifted-window transformer) become expressions that take
sympy minutes; the same module with fewer free sizes is traced in seconds. Such a trace spends most of its time in sympy
from the start, and ends earlier than one that is long for its many operators.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SECONDS = 25.0
"""Processor time of a trace with every size free."""
SYMBOLIC_SECONDS, MOST_SYMBOLIC = 10.0, 0.6
"""Processor time of one that spends more than this share in sympy."""
TICK = 0.05
"""Seconds of processor time between two looks at what the trace does."""
AGAIN = 1.0
"""Seconds of processor time after which the exception is raised again, where something on the way takes it."""


class TraceTooLong(BaseException):
    """The limit is over; no `except Exception` on the way takes it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises TraceTooLong in the block after so much processor time; no limit outside the main thread, or for 0."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    ticks, symbolic, start = 0, 0, time.process_time()

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal ticks, symbolic
        ticks, symbolic = ticks + 1, symbolic + _in_sympy(frame)
        spent = time.process_time() - start
        if spent >= seconds or (spent >= SYMBOLIC_SECONDS and symbolic > MOST_SYMBOLIC * ticks):
            signal.setitimer(signal.ITIMER_VIRTUAL, AGAIN, AGAIN)
            raise TraceTooLong

    def lost(what: Any) -> None:
        if isinstance(what.exc_value, TraceTooLong):  # raised in a weak reference's callback or a __del__
            signal.setitimer(signal.ITIMER_VIRTUAL, TICK, AGAIN)
        else:
            hook(what)

    hook, sys.unraisablehook = sys.unraisablehook, lost
    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, TICK, TICK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
        sys.unraisablehook = hook


def _in_sympy(frame: FrameType | None) -> bool:
    while frame is not None and "/sympy/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None
