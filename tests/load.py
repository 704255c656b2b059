"""Measures time on a busy machine: the seconds that an idle machine would have needed."""

from __future__ import annotations

import threading
import time
from typing import Self

PIECE_S, PAUSE_S = 0.002, 0.03


class Watch:
    """The `seconds` of a with-block, divided by the machine's load.

    The load is measured by a thread that runs pieces of 2 ms of CPU time: their wall time over their CPU time.
    """

    def __enter__(self) -> Self:
        self._ended = threading.Event()
        self._took = self._worked = 0.0
        self._control = threading.Thread(target=self._run, daemon=True)
        self._start = time.perf_counter()
        self._control.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.elapsed = time.perf_counter() - self._start
        self._ended.set()
        self._control.join()

    @property
    def load(self) -> float:
        """Wall time over CPU time of the control thread; 1 on an idle machine."""
        return max(1.0, self._took / self._worked)

    @property
    def seconds(self) -> float:
        """Wall seconds of the block over the load."""
        return self.elapsed / self.load

    def _run(self) -> None:
        while True:
            began, worked = time.perf_counter(), time.thread_time()
            while time.thread_time() - worked < PIECE_S:
                pass
            self._worked += time.thread_time() - worked
            self._took += time.perf_counter() - began
            if self._ended.wait(PAUSE_S):
                return
