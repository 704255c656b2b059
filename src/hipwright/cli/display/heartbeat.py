"""No command is silent for long: after a second without output, a line says what it does and for how long.

On a terminal the line is one that the next output clears; elsewhere a line is printed every LINE_SECONDS. What is done
comes from `hipwright.events.doing`; where a total is known, the time left is that of the pace so far. Bars and panels
draw themselves: `covered` while they do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hipwright.api.plain import clean
from hipwright.cli.display.verbosity import says_progress
from hipwright.events import observed

SILENT_SECONDS = 1.0
REDRAW_SECONDS = 0.5
LINE_SECONDS = 10.0
_CLEAR = "\r\x1b[K"


class Heartbeat:
    """Watches the output of one command. drawn: on a terminal, at which the line can be cleared."""

    def __init__(self, stream: Any, *, drawn: bool) -> None:
        self._stream, self._drawn = stream, drawn
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._text, self._done, self._total = "starting", 0, 0
        self._begun = self._heard = self._said = time.monotonic()
        self._first_done = 0
        self._part = ""
        self._shown = False
        self._covered = 0
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Clears the line and ends."""
        self._ended.set()
        self.heard()
        self._thread.join(timeout=2 * REDRAW_SECONDS)

    def doing(self, text: str, done: int, total: int) -> None:
        """Notes what is being done."""
        with self._lock:
            if not total and self._done < self._total:  # a part of what is counted
                self._part = text
                return
            if (text, total) != (self._text, self._total):
                self._text, self._begun, self._first_done, self._part = text, time.monotonic(), done, ""
            self._done, self._total = done, total

    def heard(self) -> None:
        """Notes that something is printed, and clears the line for it."""
        with self._lock:
            self._heard = self._said = time.monotonic()
            if self._shown:
                self._shown = False
                self._write(_CLEAR)

    @contextmanager
    def covered(self) -> Iterator[None]:
        """Within the block, something else draws."""
        self.heard()
        self._covered += 1
        try:
            yield
        finally:
            self._covered -= 1
            self.heard()

    def line(self, now: float) -> str:
        """What is done, how much of it, for how long, and what is left at this pace."""
        spent = now - self._begun
        parts = [clean(self._text)]
        if self._total:
            parts.append(f"{self._done} of {self._total}")
        parts.append(describe_seconds(spent))
        made = self._done - self._first_done
        if self._total and made > 0 and self._done < self._total:
            parts.append(f"about {describe_seconds(spent / made * (self._total - self._done))} left")
        return ", ".join(parts) + (f" ({clean(self._part)})" if self._part else "")

    def _watch(self) -> None:
        while not self._ended.wait(REDRAW_SECONDS):
            with self._lock:
                now = time.monotonic()
                if self._covered or self._ended.is_set() or not says_progress() or now - self._heard < SILENT_SECONDS:
                    continue
                if self._drawn:
                    self._shown = True
                    self._write(f"{_CLEAR}... {self.line(now)[:76]}")
                elif now - self._said >= LINE_SECONDS:
                    self._said = now
                    self._write(f"... {self.line(now)}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._ended.set()


class _Heard:
    """A stream of which each write is heard of first."""

    def __init__(self, stream: Any, heartbeat: Heartbeat) -> None:
        self._stream, self._heartbeat = stream, heartbeat

    def write(self, text: str) -> int:
        """Writes after the line is cleared."""
        self._heartbeat.heard()
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_current: list[Heartbeat] = []


@contextmanager
def beating(*, json_mode: bool) -> Iterator[None]:
    """A command is watched within the block; with --json at a terminal alone."""
    out, err = sys.stdout, sys.stderr
    drawn = err.isatty()
    if json_mode and not drawn:
        yield
        return
    heartbeat = Heartbeat(err, drawn=drawn)
    sys.stderr = _Heard(err, heartbeat)
    if out.isatty():
        sys.stdout = _Heard(out, heartbeat)
    _current.append(heartbeat)
    heartbeat.start()
    try:
        with observed(heartbeat.doing):
            yield
    finally:
        _current.remove(heartbeat)
        heartbeat.stop()
        sys.stdout, sys.stderr = out, err


@contextmanager
def covered() -> Iterator[None]:
    """Within the block, a bar or a panel draws: the current command's line is not drawn."""
    if not _current:
        yield
        return
    with _current[-1].covered():
        yield


def describe_seconds(value: float) -> str:
    """A duration in whole units: 12 s, 3 min, 1 h 20 min."""
    if value < 100:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
