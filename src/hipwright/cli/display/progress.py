"""Progress of a running search on stderr: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

from hipwright.api.plain import clean
from hipwright.cli.display.drawing import DrawingListener
from hipwright.cli.display.heartbeat import describe_seconds
from hipwright.cli.display.verbosity import Verbosity, draws_progress, says_progress, verbosity
from hipwright.cli.output import rich_console
from hipwright.measure.gain import describe_factor

LINE_SECONDS = 5.0  # without a terminal: at most one line in this time, besides the new bests


class SearchProgress(DrawingListener):
    """A listener for `api.optimize.run_search` that shows the latest state on stderr; a context manager.

    It understands the kinds "planned" {budget}, which starts the panel, "stage" {text}, "baseline" {microseconds}: the
    ESTIMATE of the unfused task, "proposed" {fallback, given_up}, "evaluated" {number, status, message, score,
    evaluations}, "decided" {number, best, score, score_kind}, "llm_answered" {role, number, tokens, cost_usd},
    "llm_retry" {model, why, wait} and "llm_away" {model, why}; others are ignored.
    """

    def __init__(self, title: str, budget: int = 0) -> None:
        super().__init__()
        self.title, self.budget = title, budget
        self.done = 0
        self.best: float | None = None
        self.best_number = -1
        self.kind = "estimate"
        self.unfused: float | None = None
        self.first: float | None = None
        self.at_first = 0
        self.best_at = 0.0
        self.statuses: Counter[str] = Counter()
        self.calls, self.dollars = 0, 0.0
        self.last = "starting"
        self.started = time.monotonic()
        self._said = 0.0

    # ---------------------------------------------------------------- events

    def _on_planned(self, data: dict[str, Any]) -> None:
        self.budget = int(data.get("budget", 0))
        if draws_progress():
            from rich.live import Live

            self._draw(
                Live(console=rich_console(sys.stderr), refresh_per_second=4, get_renderable=self._panel, transient=True)
            )

    def _on_stage(self, data: dict[str, Any]) -> None:
        self.last = clean(data.get("text", ""))
        self._line(self.last, always=True)

    def _on_baseline(self, data: dict[str, Any]) -> None:
        self.unfused = float(data["microseconds"])
        self._line(f"the task's own operators one by one take {self.unfused:.2f} µs (ESTIMATE)", always=True)

    def _on_proposed(self, data: dict[str, Any]) -> None:
        if why := data.get("fallback"):
            self.last = f"left to the library: {clean(str(data.get('given_up', '')))} ({clean(str(why))})"
            self._line(self.last, always=True)

    def _on_evaluated(self, data: dict[str, Any]) -> None:
        status = clean(data.get("status", ""))
        self.done = int(data.get("evaluations", self.done + 1))
        self.statuses[status] += 1
        if self.first is None:
            self.first, self.at_first = time.monotonic(), self.done
        message = clean(data.get("message") or "")
        self.last = f"#{data.get('number', '?')} {status}" + (f": {message}" if message else "")
        self._line(self.last, always=False)

    def _on_decided(self, data: dict[str, Any]) -> None:
        if not data.get("best"):
            return
        self.best, self.best_number = data.get("score"), int(data.get("number", -1))
        self.kind = str(data.get("score_kind") or self.kind)
        self.best_at = time.monotonic()
        self._line(f"new best #{self.best_number}: {self._score()}", always=True)

    def _on_llm_answered(self, data: dict[str, Any]) -> None:
        self.calls += 1
        self.dollars += float(data.get("cost_usd", 0.0))
        self.last = f"{data.get('role', '?')} answered for #{data.get('number', '?')} ({data.get('tokens', 0)} tokens)"
        self._line(self.last, always=False)

    def _on_llm_retry(self, data: dict[str, Any]) -> None:
        why, wait = clean(str(data.get("why", ""))), float(data.get("wait", 0.0))
        self.last = f"{clean(str(data.get('model', 'model')))}: {why}; again in {wait:.0f} s"
        self._line(self.last, always=False)

    def _on_llm_away(self, data: dict[str, Any]) -> None:
        why = clean(str(data.get("why", ""))).rstrip(".")
        self.last = f"{why}: the engine goes on without it"
        self._line(self.last, always=True)

    # ---------------------------------------------------------------- showing

    def _line(self, text: str, *, always: bool) -> None:
        now = time.monotonic()
        if not says_progress():
            return
        always = always or verbosity() == Verbosity.verbose
        if self._drawn is None and (always or now - self._said >= LINE_SECONDS):
            self._said = now
            print(f"[{now - self.started:5.1f}s {self.done}/{self.budget}] {text}", file=sys.stderr, flush=True)

    def _score(self) -> str:
        if self.best is None:
            return "passed"
        gain = ""
        if self.unfused is not None and self.kind == "estimate" and self.best > 0:
            gain = f", {describe_factor(self.unfused / self.best)} than unfused"
        return f"{self.best:.2f} µs ({self.kind.upper()}){gain}"

    def _left(self) -> str:
        """How long the rest of the budget takes at the pace since the first evaluation; "" before the second."""
        if self.first is None or self.done <= self.at_first or self.done >= self.budget:
            return ""
        pace = (time.monotonic() - self.first) / (self.done - self.at_first)
        return f", about {describe_seconds(pace * (self.budget - self.done))} left at this pace"

    def _panel(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        now = time.monotonic()
        best = "none yet"
        if self.best_number >= 0:
            best = f"#{self.best_number}  {self._score()}, {describe_seconds(now - self.best_at)} ago"
        counts = "  ".join(f"{status} {count}" for status, count in self.statuses.most_common())
        elapsed = f"{describe_seconds(now - self.started)}{self._left()}"
        rows = [("best", best), ("statuses", counts or "–"), ("last", self.last), ("elapsed", elapsed)]
        if self.calls:
            rows.insert(2, ("models", f"{self.calls} calls, ${self.dollars:.4f}"))
        for label, value in rows:
            grid.add_row(Text(label, style="dim"), Text(value, overflow="ellipsis", no_wrap=True))
        head = Text(f"{clean(self.title)}  {self.done}/{self.budget} evaluations", style="bold")
        return Group(head, ProgressBar(total=max(self.budget, 1), completed=self.done, width=48), grid)
