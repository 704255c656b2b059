"""A benchmark on a terminal: a line for each row as it comes, then the figures as tables."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean
from hipwright.cli.display.fitted import plain_table
from hipwright.cli.display.verbosity import says_progress
from hipwright.evaluation.figures import worst
from hipwright.events import doing
from hipwright.measure.memory import MUCH
from hipwright.report.bench_model import cost_lines, curves, describe_share
from hipwright.report.formatting import number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

    from hipwright.api.bench.report import BenchmarkReport
    from hipwright.evaluation.bench import BenchRow

EVENTS = {
    "retry": "{job}: tried again after: {error}",
    "hang": "{device} is stuck for {seconds:.0f} s: aborted",
    "device_lost": "{device} is given up: {why}",
    "llm_retry": "{model}: {why}; asked again in {wait:.1f} s",
}
"""The line for each kind of event besides "row" and "note"."""


class BenchProgress:
    """A listener for `run_benchmark`: a line on stderr for each row, and for faults of the machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self, kind: str, data: dict[str, Any]) -> None:
        """Handles one event."""
        if kind == "row":
            doing("judging tasks", data["done"], data["total"])
        if kind == "row" and not says_progress():
            return
        if kind == "row":
            self._say(row_line(data["row"], data["done"], data["total"]))
        elif kind in EVENTS:
            self._say(EVENTS[kind].format(**data))
        elif kind == "note":
            self._say(data["text"], limit=None)

    def _say(self, text: str, limit: int | None = 300) -> None:
        with self._lock:
            print(clean(text)[:limit], file=sys.stderr, flush=True)


def row_line(row: BenchRow, done: int, total: int) -> str:
    """A row in a line."""
    speed = "".join(f", {one.speedup:.2f}x {name}" for name, one in row.speedups.items())
    why = f": {row.message}" if row.message and not row.correct else ""
    return f"[{done}/{total}] {row.task}: {row.status}{speed} ({row.seconds:.1f} s){why}"


def print_benchmark(console: Console, report: BenchmarkReport) -> None:
    """Shares, means, the worst rows, what was not measured, and the figures of models."""
    request, rows = report.request, report.rows
    source = "the engine's own programs" if request.candidates is None else "candidates"
    source = f"samples of {report.source}" if request.models else source
    spent = seconds(sum(row.seconds for row in rows))
    console.print(
        f"{request.suite.name}: {len(rows)} of {report.expected} rows, {source}, {request.mode} "
        f"rule, {spent} of evaluation",
        style="bold",
    )
    _print_figures(console, report.figures)
    listed = worst(rows)
    cells = [
        (row.task, row.candidate, row.status, _speeds(row), percent(row.coverage), row.message[:90]) for row in listed
    ]
    console.print(f"the worst {len(listed)}:")
    console.print(
        plain_table(("task", "candidate", "status", "speedup", "coverage", "why"), cells, right=("coverage",))
    )
    much = [f"{row.task} ({row.written:.1f})" for row in rows if (row.written or 0.0) > MUCH]
    if much:
        console.print(f"write more than {MUCH} times their inputs and outputs: {', '.join(much)}", style="yellow")
    for line in report.not_measured:
        console.print(f"not measured: {line}", style="yellow")
    if request.out is not None:
        console.print(f"in {request.out}: bench.html, result.json, rows.csv, rows.jsonl")
    if report.model is not None:
        _print_model(console, report.model)


def _print_figures(console: Console, found: Mapping[str, Any]) -> None:
    lines = [("compiled", found["compiled"]), ("correct", found["correct"])]
    if "strict_correct" in found:
        lines.append(("correct by the strict rule", found["strict_correct"]))
    if "by_format" in found:
        lines.append(("correct by the format's tolerance", found["by_format"]))
    for baseline, levels in (found["fast_p"] or {}).items():
        lines += [(f"fast_{p} against {baseline}", share) for p, share in levels.items()]
    heads = ("", "rows", "share", "95 % interval")
    console.print(plain_table(heads, [_share_cells(*line) for line in lines], right=heads[1:]))
    if len(found["categories"]) > 1:
        _print_categories(console, found["categories"])
    for baseline, means in (found["geometric_mean"] or {}).items():
        console.print(f"geometric mean against {baseline}: {_means(means)}")
    if found["coverage"]["rows"]:
        console.print(
            f"coverage {percent(found['coverage']['mean'])} on average of {found['coverage']['rows']} correct"
        )
    if found["not_judged"]:
        counts = ", ".join(f"{count} by the {fault}'s fault" for fault, count in found["not_judged"].items())
        console.print(f"not judged, and in no denominator: {counts}", style="yellow")


def _print_categories(console: Console, found: Mapping[str, Any]) -> None:
    heads = ("category", "tasks", "compiled", "correct", "by the format")
    cells = []
    for name, one in found.items():
        shares = [one[key] for key in ("compiled", "correct", "by_format")]
        counts = (f"{share['count']} of {share['total']}" if share else "-" for share in shares)
        cells.append((name, str(one["tasks"]), *counts))
    console.print(plain_table(heads, cells, right=heads[1:]))


def _share_cells(name: str, share: Mapping[str, Any]) -> tuple[str, str, str, str]:
    low, high = share["interval"]
    return name, f"{share['count']} of {share['total']}", percent(share["share"]), f"{100 * low:.0f}-{100 * high:.0f} %"


def _means(means: Mapping[str, Any]) -> str:
    parts = []
    for key, what in (("of_correct", "correct rows"), ("of_all", f"all, a failure as {means['failures_count_as']}")):
        if (mean := means[key]) is not None:
            low, high = mean["interval"]
            parts.append(f"{mean['value']:.2f}x ({low:.2f}-{high:.2f}) of {mean['rows']} {what}")
    return "; ".join(parts) or "none"


def _speeds(row: BenchRow) -> str:
    return ", ".join(f"{number(one.speedup)}x {name}" for name, one in row.speedups.items()) or "-"


def _print_model(console: Console, model: Mapping[str, Any]) -> None:
    """The curves over k, the kinds of answers, and their cost."""
    found = curves(model)
    heads = ("k", *found)
    cells = [(k, *(describe_share(curve[k]) for curve in found.values())) for k in model["pass_at"]]
    console.print("of k samples a task, at least one (95 % interval over the tasks):")
    console.print(plain_table(heads, cells, right=heads))
    _print_counts(console, "answers", model["answers"])
    _print_counts(console, "mended without asking again", model["mended"])
    for line in cost_lines(model):
        console.print(line)


def _print_counts(console: Console, what: str, counts: Mapping[str, int]) -> None:
    rows: Sequence[tuple[str, str]] = [(name, str(count)) for name, count in counts.items()]
    if rows:
        console.print(plain_table((what, "rows"), rows, right=("rows",)))
