"""Distinguishes a candidate that hangs from a GPU that serves no process, when a call is late. Does not import torch.

After some faults of a kernel an NVIDIA GPU serves no process for several seconds (seen on an H200 after misaligned
accesses; docs/measurement.md), so every call is late. The canary is a process that
runs no candidate. It is asked to run a trivial kernel: where that returns at once, the late candidate hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hipwright.errors import HipwrightError
from hipwright.sandbox import Session

PULSE_S = 0.5  # a GPU that is shared answers within milliseconds
GRACE_S = 2.0  # after a stall, for the calls that were waiting
MOST_S = 12.0  # the longest stall for which calls are extended
ASK_S = 60.0  # a canary that has not answered by then is ended


class Canary:
    """Asks one idle process, which `start` starts. Safe to use from several threads.

    Without `open`, or where the process cannot be started, no late call is extended.
    """

    def __init__(self, start: Callable[[], Session], *, pulse_s: float = PULSE_S, grace_s: float = GRACE_S) -> None:
        self._start, self._pulse_s, self._grace_s = start, pulse_s, grace_s
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._answered: threading.Event | None = None  # set once the latest request is answered
        self._asked = 0.0
        self._ended = float("-inf")  # when the last stall ended
        self._opening = threading.Lock()

    def open(self) -> None:
        """Starts the process, if there is none. Raises what starting it raises."""
        with self._opening:
            if self._session is None or not self._session.alive:
                self._session = self._start()

    def close(self) -> None:
        """Ends the process; one that has not answered yet is ended by the thread that asked it."""
        with self._opening, self._lock:
            session, self._session = self._session, None
            busy = self._answered is not None and not self._answered.is_set()
        if session is not None and not busy:
            session.close()

    def stalled(self) -> bool:
        """Whether the GPU serves no process now, or did not until GRACE_S ago, so that a late call is extended."""
        session = self._session
        if session is None or not session.alive:
            return False
        with self._lock:
            if self._answered is None or self._answered.is_set():
                if time.monotonic() - self._ended < self._grace_s:
                    return True
                self._ask(session)
            answered, asked = self._answered, self._asked
        assert answered is not None
        if answered.wait(max(0.0, asked + self._pulse_s - time.monotonic())):
            return time.monotonic() - self._ended < self._grace_s
        return not self.lost

    @property
    def lost(self) -> bool:
        """Whether a stall has lasted so long that no call is extended any more."""
        with self._lock:
            open_ = self._answered is not None and not self._answered.is_set()
            return open_ and time.monotonic() - self._asked >= MOST_S

    def _ask(self, session: Session) -> None:
        self._answered, self._asked = threading.Event(), time.monotonic()
        threading.Thread(target=self._pulse, args=(session, self._answered, self._asked), daemon=True).start()

    def _pulse(self, session: Session, answered: threading.Event, asked: float) -> None:
        try:
            session.call_json("pulse", {}, timeout_s=ASK_S)
        except HipwrightError:
            session.close()  # its view of the GPU is out of date
        now = time.monotonic()
        with self._lock:
            if now - asked > self._pulse_s:
                self._ended = now
            answered.set()
            closed = self._session is not session
        if closed:
            session.close()
