"""A judge's time by stage, with a trace.

A stage's `sum` adds the seconds of all threads in it; its `busy` seconds count each moment once. The busy share of the
stage "gpu" (verification, timing, and the caller's own work there) shows whether the GPU waits for the processor.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPANS = 20_000  # the trace keeps the last ones


@dataclass
class _Stage:
    """seconds: summed over threads; busy: with at least one thread inside; since: when it was last entered empty."""

    count: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    inside: int = 0
    since: float = 0.0


class StageTimes:
    """Measures seconds by stage. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._stages: dict[str, _Stage] = {}
        self._spans: deque[tuple[str, str, int, float, float]] = deque(maxlen=SPANS)

    @contextmanager
    def during(self, *stages: str, what: str = "") -> Iterator[None]:
        """Counts the block's time for each of the stages. what: a name in the trace."""
        start = self._enter(stages)
        try:
            yield
        finally:
            self._leave(stages, start, what)

    def figures(self) -> dict[str, Any]:
        """{"wall_s", "stages": {name: {"count", "sum_s", "busy_s", "busy_share"}}} since the start or `restart`."""
        with self._lock:
            now = time.monotonic()
            wall = max(now - self._begun, 1e-9)
            stages = {}
            for name, stage in sorted(self._stages.items()):
                busy = stage.busy + (now - stage.since if stage.inside else 0.0)
                stages[name] = {
                    "count": stage.count,
                    "sum_s": round(stage.seconds, 4),
                    "busy_s": round(busy, 4),
                    "busy_share": round(busy / wall, 4),
                }
            return {"wall_s": round(wall, 4), "stages": stages}

    def restart(self) -> None:
        """Resets the figures. A stage in progress counts from its begin in `sum`, and from now in `busy`."""
        with self._lock:
            self._begun = time.monotonic()
            for stage in self._stages.values():
                stage.count, stage.seconds, stage.busy, stage.since = 0, 0.0, 0.0, self._begun
            self._spans.clear()

    def write_trace(self, path: Path) -> None:
        """Writes the last spans in the Trace Event format of chrome://tracing and Perfetto, a row for each thread."""
        with self._lock:
            spans = list(self._spans)
        events = [
            {
                "name": name,
                "cat": name,
                "ph": "X",
                "pid": 1,
                "tid": thread,
                "ts": round(1e6 * (start - self._begun)),
                "dur": round(1e6 * (end - start)),
                "args": {"what": what},
            }
            for name, what, thread, start, end in spans
        ]
        path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")

    def _enter(self, stages: tuple[str, ...]) -> float:
        with self._lock:
            now = time.monotonic()
            for name in stages:
                stage = self._stages.setdefault(name, _Stage())
                if not stage.inside:
                    stage.since = now
                stage.inside += 1
            return now

    def _leave(self, stages: tuple[str, ...], start: float, what: str) -> None:
        with self._lock:
            now = time.monotonic()
            for name in stages:
                stage = self._stages[name]
                stage.inside -= 1
                stage.count += 1
                stage.seconds += now - start
                if not stage.inside:
                    stage.busy += now - stage.since
            self._spans.append((stages[0], what, threading.get_ident(), start, now))
