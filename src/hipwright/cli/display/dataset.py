"""Data sets on a terminal: progress of builds and checks, and their figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hipwright.api.plain import clean
from hipwright.cli.display.drawing import DrawingListener
from hipwright.cli.display.verbosity import draws_progress, says_progress
from hipwright.cli.output import CommandOutput, rich_console

if TYPE_CHECKING:
    from hipwright.api.data.overlap import DatasetOverlap
    from hipwright.dataset.build import BuildReport
    from hipwright.dataset.check import CheckReport
    from hipwright.dataset.export.format import ExportSummary
    from hipwright.dataset.rejudge import RejudgeReport
    from hipwright.dataset.store import TaskOutcome

LINE_SECONDS = 5.0  # without a terminal: at most one line in this time
LISTED = 10  # problems that are printed of a list


class DatasetProgress(DrawingListener):
    """A listener for the use cases of data sets: a bar on a terminal, else a line now and then; a context manager.

    It understands "planned" {total, done}, which starts the bar, "built" {done, report, outcome}, "checked" {done,
    total, wrong}, "compared" {done, count, task}, "problems" {what, lines} and "note" {text}.
    """

    def __init__(self, output: CommandOutput, unit: str) -> None:
        super().__init__()
        self._output, self._unit = output, unit
        self._total = self._done = self._done_before = 0
        self._begun, self._said = time.monotonic(), 0.0
        self._id: Any = None

    def _on_note(self, data: dict[str, Any]) -> None:
        self._output.say(data["text"])

    def _on_problems(self, data: dict[str, Any]) -> None:
        print_problems(self._output, data["what"], data["lines"])

    def _on_planned(self, data: dict[str, Any]) -> None:
        self._total, self._done = data["total"], data["done"]
        self._done_before, self._begun = self._done, time.monotonic()
        if draws_progress():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self._unit),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=rich_console(sys.stderr),
                transient=True,
            )
            self._id = bar.add_task("", total=self._total, completed=self._done)
            self._draw(bar)

    def _on_built(self, data: dict[str, Any]) -> None:
        report: BuildReport = data["report"]
        rates = f"{report.pairs} pairs, {report.per_hour(report.pairs):.0f} an hour, {len(report.failures())} tasks"
        self._step(data["done"], f"{rates} without", clean(outcome_line(data["outcome"])))

    def _on_checked(self, data: dict[str, Any]) -> None:
        self._total = data["total"]
        self._step(data["done"], f"{data['wrong']} wrong", "")

    def _on_compared(self, data: dict[str, Any]) -> None:
        self._total = data["count"]
        self._step(data["done"], "looked at", str(data["task"]))

    def _step(self, done: int, rates: str, last: str) -> None:
        self._done = done
        if self._drawn is not None:
            self._drawn.update(self._id, completed=done, total=self._total, description=rates)
            return
        now = time.monotonic()
        if says_progress() and (now - self._said >= LINE_SECONDS or done == self._total):
            self._said = now
            text = f"[{now - self._begun:6.1f}s {done}/{self._total} {self._unit}, {self._left(now)}] {rates}"
            print(f"{text}; {last}" if last else text, file=sys.stderr, flush=True)

    def _left(self, now: float) -> str:
        made = self._done - self._done_before
        left = (now - self._begun) / made * (self._total - self._done) if made else 0.0
        return f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"


def print_problems(output: CommandOutput, what: str, lines: Sequence[str]) -> None:
    """Says how many problems of a kind there are on stderr, and the first of them; nothing for none."""
    if lines:
        output.say(f"{len(lines)} {what}:")
        for line in lines[:LISTED]:
            output.say(f"  {line}")
        if len(lines) > LISTED:
            output.say(f"  and {len(lines) - LISTED} more")


def outcome_line(outcome: TaskOutcome) -> str:
    """A task's outcome in a line."""
    return f"{outcome.name}: {outcome.status}" + (f": {outcome.why}" if outcome.why else "")


def print_build(output: CommandOutput, report: BuildReport, out: Path) -> None:
    """The pairs, the tasks by outcome, the rates, and the tasks without a verified program."""
    console, found = output.console(), report.to_dict()
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(report.statuses.items()))
    console.print(f"{found['pairs']} pairs of {report.tasks} tasks in {out}")
    console.print(f"tasks: {statuses}; {report.covered} with coverage of a half and more")
    console.print("tried: " + ", ".join(f"{count} {what}" for what, count in sorted(report.counts.items())))
    if report.tasks_done:
        rate, verified = report.per_hour(report.pairs), report.per_hour(report.verified)
        console.print(
            f"now: {report.tasks_done} tasks, {report.pairs} pairs and {report.evaluations} evaluations in "
            f"{report.seconds:.0f} s: {rate:.0f} pairs an hour, {verified:.0f} of them of a verified program"
        )
    print_problems(output, "tasks have no verified program", [outcome_line(one) for one in report.failures()])


def print_check(output: CommandOutput, report: CheckReport) -> None:
    """The rows that were verified again, and those that are wrong or could not be looked at."""
    found = report.to_dict()
    output.console().print(
        f"{found['checked']} of {report.rows} rows verified again from scratch on secret inputs, "
        f"{found['correct']} of them of a right program: {len(report.wrong)} wrong"
    )
    wrong = [f"{one.key} ({one.task}, {one.kind}): {one.wrong}" for one in report.wrong]
    print_problems(output, "rows are wrong", wrong)
    void = [f"{one.key} ({one.task}): {one.void}" for one in report.void]
    print_problems(output, "rows could not be looked at", void)


def print_rejudged(output: CommandOutput, report: RejudgeReport, out: Path) -> None:
    """How many rows hold, and each that fell with the reason."""
    found = report.to_dict()
    output.console().print(
        f"{found['kept']} of {found['rows']} rows hold and are in {out} ({found['upgraded']} with device headers in "
        "place of pasted helpers)"
    )
    print_problems(output, "rows fell", [f"{one.key} ({one.task}, {one.kind}): {one.why}" for one in report.fallen])
    print_problems(output, "rows could not be judged", [f"{one.key} ({one.task}): {one.why}" for one in report.void])


def print_overlap(output: CommandOutput, result: DatasetOverlap, against: Sequence[Path], out: Path | None) -> None:
    """The overlapping tasks, each with the one it is like."""
    console, found = output.console(), result.found
    where = f"{found.others} tasks of {', '.join(map(str, against))}" if against else "each other"
    console.print(f"{found.tasks} tasks compared with {where}: {len(found.found)} overlap ({100 * result.share:.1f} %)")
    for hit in found.hits:
        console.print(f"  {hit.task} is like {hit.other}: {hit.how}, {hit.likeness:.2f}")
    if result.kept is not None:
        console.print(f"{result.kept} rows of the others in {out}")


def print_stats(output: CommandOutput, figures: dict[str, Any], out: Path | None) -> None:
    """The figures as lines; distributions are for the page and for --json."""
    console = output.console()
    for name, value in figures.items():
        if isinstance(value, (int, float, str)):
            console.print(f"{name}: {value}")
        elif isinstance(value, dict) and value and all(isinstance(item, (int, float)) for item in value.values()):
            most = sorted(value.items(), key=lambda item: -item[1])
            more = f", and {len(most) - 12} more" if len(most) > 12 else ""
            console.print(f"{name}: " + ", ".join(f"{key} {count}" for key, count in most[:12]) + more)
    if out is not None:
        console.print(f"page: {out}")


def print_export(output: CommandOutput, summary: ExportSummary, form: str, out: Path) -> None:
    """The rows written by split, and those of no use to the format."""
    console = output.console()
    console.print(f"{summary.total} rows of {summary.read} pairs as {form} in {out}")
    for name, splits in summary.rows.items():
        console.print(f"  {name}: " + ", ".join(f"{rows} {split}" for split, rows in splits.items()))
    for why, count in summary.left_out.items():
        console.print(f"  {count} not of use to this format: {why}")
