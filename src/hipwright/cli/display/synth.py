"""Progress of a running synthesis on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from hipwright.api.plain import clean
from hipwright.cli.display.drawing import DrawingListener
from hipwright.cli.display.verbosity import draws_progress, says_progress
from hipwright.cli.output import rich_console

LINE_SECONDS = 5.0


class SynthProgress(DrawingListener):
    """A listener for `run_synthesis`: a bar on a terminal, a line every few seconds elsewhere; a context manager."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._began, self._said = time.monotonic(), 0.0

    def __enter__(self) -> Self:
        if draws_progress():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
            bar = Progress(*columns, console=rich_console(sys.stderr), transient=True)
            self._draw(bar)
            self._task = bar.add_task("starting", total=self._count)
        return self

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Handles one event."""
        if kind == "note":
            print(clean(data["text"]), file=sys.stderr, flush=True)
        if kind == "llm_retry":
            self._line(clean("{model}: {why}; asked again in {wait:.1f} s".format(**data)))
        if kind == "compared" and time.monotonic() - self._said >= LINE_SECONDS and self._drawn is None:
            self._line(f"reading {data['done']} of {data['count']} tasks to keep away from")
        if kind != "synth":
            return
        rate = 60 * data["made"] / max(data["seconds"], 1e-9)
        left = (self._count - data["done"]) / rate if rate else 0.0
        text = f"{data['dropped']} dropped, {rate:.1f} tasks a minute, {left:.0f} min left"
        if self._drawn is not None:
            self._drawn.update(self._task, completed=data["done"], description=text)
        elif time.monotonic() - self._said >= LINE_SECONDS or data["done"] == self._count:
            last = f"{data['task']}: {data['stage'] + ': ' + data['why'] if data['stage'] else 'taken'}"
            self._line(f"{text}; {clean(last)[:160]}", done=data["done"])

    def _line(self, text: str, *, done: int | None = None) -> None:
        self._said = time.monotonic()
        if not says_progress():
            return
        place = f" {done}/{self._count}" if done is not None else ""
        print(f"[{self._said - self._began:6.1f}s{place}] {text}", file=sys.stderr, flush=True)
