"""A/A over time: the eager baseline of one task on one GPU, timed with each candidate, must take what it took before.

A GPU that throttles, or that something else uses, times the same thing differently an hour or a minute later. Each
evaluation times eager beside the candidate, so the comparison costs nothing.
"""

from __future__ import annotations

from collections import deque
from math import log
from statistics import median

ALLOWED = 0.15
"""The most that a median of eager may differ from those before, as a ratio less one. Two processes that run the same
thing differ by 0.4 % (`paired_timing.PLACEMENT`), days of one H200 by 3 % (docs/results); a GPU at half its clock by
far more."""
SHORT_MS = 0.02  # shorter calls scatter with the host
KEPT, TASKS = 5, 256


class BaselineDrift:
    """The last medians of each task's eager baseline on one device."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}

    def off(self, task: str, eager_ms: float | None) -> str:
        """Notes a median; why it is not what it was before, "" if it is or nothing is known."""
        if eager_ms is None or eager_ms < SHORT_MS:
            return ""
        if task not in self._seen:
            while len(self._seen) >= TASKS:
                del self._seen[next(iter(self._seen))]
            self._seen[task] = deque(maxlen=KEPT)
        before = self._seen[task]
        usual = median(before) if before else eager_ms
        before.append(eager_ms)
        if abs(log(eager_ms / usual)) <= log(1 + ALLOWED):
            return ""
        return f"eager of {task} takes {eager_ms:.4g} ms, and took {usual:.4g} ms on this device before"
