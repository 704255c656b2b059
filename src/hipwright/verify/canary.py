"""Does a GPU answer anybody? Asked when a call is late, so that nobody is blamed for a GPU that stands still. No torch.

After some faults of a kernel an NVIDIA GPU serves no process for five to eight seconds (seen on an H200, in three of
six batches with one misaligned access each; docs/measurement.md): whoever waits then is late through no fault of its
own. A process that runs nothing else is asked for a trivial kernel: where that comes back at once, the late one hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hipwright.errors import HipwrightError
from hipwright.sandbox import Session

PULSE_S = 0.5  # a GPU that is shared answers within milliseconds
GRACE_S = 2.0  # after a standstill, for those who have waited to get their answers
MOST_S = 12.0  # of standing still that is waited for
ASK_S = 60.0  # a question that is not answered by then ends the process that was asked


class Canary:
    """Asks one idle process, which `start` makes. Safe to use from several threads.

    Without `open`, or where its process cannot be started, nobody is waited for.
    """

    def __init__(self, start: Callable[[], Session], *, pulse_s: float = PULSE_S, grace_s: float = GRACE_S) -> None:
        self._start, self._pulse_s, self._grace_s = start, pulse_s, grace_s
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._answered: threading.Event | None = None  # of the question that is open, or was the last
        self._asked = 0.0
        self._ended = float("-inf")  # when the last standstill did
        self._opening = threading.Lock()

    def open(self) -> None:
        """Start the process, if there is none. Raises what starting it raises."""
        with self._opening:
            if self._session is None or not self._session.alive:
                self._session = self._start()

    def close(self) -> None:
        """End the process; one that has not answered yet is left to who asked it."""
        with self._opening, self._lock:
            session, self._session = self._session, None
            busy = self._answered is not None and not self._answered.is_set()
        if session is not None and not busy:
            session.close()

    def still(self) -> bool:
        """Whether the GPU answers nobody now, or did so moments ago: a call that is late is waited for."""
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
        """Whether the GPU has answered nobody for so long that nobody waits for it any more."""
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
            session.close()  # it knows nothing of the GPU any more
        now = time.monotonic()
        with self._lock:
            if now - asked > self._pulse_s:
                self._ended = now
            answered.set()
            closed = self._session is not session
        if closed:
            session.close()
