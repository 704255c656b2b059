"""The work behind `dataset build` and `dataset check`: workers with warm machines, progress, and what is told."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hipwright.api.plain import clean
from hipwright.cli import exit_codes
from hipwright.cli.output import CommandOutput, rich_console
from hipwright.errors import BadInput, SandboxMissing
from hipwright.machine import Machine, machine
from hipwright.records import Evaluation, Program
from hipwright.targets import CPU, TARGETS

if TYPE_CHECKING:
    from hipwright.archive import Archive
    from hipwright.dataset import check as checking
    from hipwright.dataset.build import BuildReport
    from hipwright.dataset.make import BuildSettings
    from hipwright.dataset.records import Pair
    from hipwright.dataset.store import BadRow, DatasetStore

LINE_SECONDS = 5.0  # without a terminal: at most one line in this time
NAMED = 10  # of what went wrong, how many are named


def run_build(
    output: CommandOutput, tasks: Path, out: Path, settings: BuildSettings, *, workers: int, resume: bool, unsafe: bool
) -> int:
    """Make what is missing; returns the exit code."""
    from hipwright.dataset.build import build
    from hipwright.dataset.make import Hooks
    from hipwright.dataset.store import DatasetStore
    from hipwright.dataset.tasks import read_tasks

    entries, problems = read_tasks(tasks)
    must_contain(unsafe)
    name_some(output, "in the folder of tasks", problems)
    with DatasetStore(out, settings.to_dict(), resume=resume) as store:
        name_some(output, "unreadable lines, kept in bad.jsonl", [_line(one) for one in store.bad])
        done = sum(store.done(entry.key) for entry in entries)
        if done:
            output.say(f"{done} of {len(entries)} tasks are done already")
        opener = partial(machine, settings.targets, unsafe=unsafe)
        hooks = Hooks(mutants, evidence_words, lessons)
        begun = time.monotonic()
        with BuildProgress("tasks", len(entries), done) as bar:

            def listen(kind: str, data: dict[str, Any]) -> None:
                report: BuildReport = data["report"]
                bar.step(done + report.made, _rates(report), clean(_last(data["outcome"])))

            try:
                report = build(entries, store, opener, settings, hooks, workers=workers, listener=listen, dress=splits)
            except KeyboardInterrupt:
                output.say(f"interrupted after {len(store.outcomes)} of {len(entries)} tasks: go on with --resume")
                if output.json_mode:
                    output.result(
                        {"interrupted": True, "tasks": len(store.outcomes), "exit_code": exit_codes.INTERRUPTED}
                    )
                return exit_codes.INTERRUPTED
        bad = [one.to_dict() for one in store.bad]
    told = {**report.to_dict(), "problems": problems, "bad_rows": bad, "wall_s": round(time.monotonic() - begun, 1)}
    if output.json_mode:
        output.result({**told, "out": str(out)})
    else:
        _say_built(output, report, out)
    return 3 if report.statuses["fault"] else 0 if report.statuses["verified"] else 1


def compose(
    output: CommandOutput, out: Path, tasks: Path, count: int, seed: int, *, workers: int, resume: bool, unsafe: bool
) -> bool:
    """New tasks for a data set, going on with those that are there; False when interrupted."""
    from hipwright.cli.synth import composed
    from hipwright.dataset.store import MANIFEST

    must_contain(unsafe)
    if not resume and (out / MANIFEST).exists():
        raise BadInput(f"{out} already holds a data set", hint="--resume goes on with it, or choose another --out")
    return composed(output, tasks, count, seed, workers=workers, resume=resume, unsafe=unsafe)


def run_check(output: CommandOutput, data: Path, *, sample: int, seed: int | None, workers: int, unsafe: bool) -> int:
    """Verify a sample again; exit 1 when a row is wrong, 3 when the machine kept some from being looked at."""
    from hipwright.dataset.check import check
    from hipwright.dataset.store import read_pairs

    must_contain(unsafe)
    bad: list[BadRow] = []
    targets = (*TARGETS.default_offline, CPU.name)
    with BuildProgress("rows", sample, 0) as bar:

        def listen(kind: str, told: dict[str, Any]) -> None:
            bar.total = told["total"]
            bar.step(told["done"], f"{told['wrong']} wrong", "")

        opener = partial(fresh_machine, targets, unsafe)
        report = check(read_pairs(data, bad), opener, sample=sample, seed=seed, workers=workers, listener=listen)
    name_some(output, "unreadable lines", [_line(one) for one in bad])
    if output.json_mode:
        output.result({**report.to_dict(), "bad_rows": [one.to_dict() for one in bad]})
    else:
        _say_checked(output, report)
    return 1 if report.wrong or bad else 3 if report.void or not report.checked else 0


# ---------------------------------------------------------------- what the workers are handed


@contextmanager
def fresh_machine(targets: tuple[str, ...], unsafe: bool) -> Iterator[Machine]:
    """A Machine that has compiled nothing yet."""
    with (
        tempfile.TemporaryDirectory(prefix="hipwright-check-") as folder,
        machine(targets, unsafe=unsafe, cache=Path(folder)) as made,
    ):
        yield made


def mutants(program: Program, number: int) -> Iterator[tuple[Program, str]]:
    """Every automatic mutant, in an order drawn from the number; the same kind of change seldom twice in a row."""
    from hipwright.audit.mutants import mutants as every
    from hipwright.audit.mutants import sample
    from hipwright.program import parse

    for mutant in sample([every("program", parse(program.text))], number):
        yield Program(text=mutant.text, knobs=program.knobs), mutant.said()


def evidence_words(evaluation: Evaluation, program: Program) -> str:
    """What the verifier found, as a model is told it."""
    from hipwright.agents.evidence import evidence

    return evidence(evaluation, program)


def lessons(archive: Archive, run: str) -> Iterable[Pair]:
    """The pairs of a search run."""
    from hipwright.agents.archivist import pairs

    return pairs(archive, run)


def splits(store: DatasetStore) -> dict[str, dict[str, Any]]:
    """Every row's split, decided over the whole data set."""
    from hipwright.dataset.split import fields
    from hipwright.dataset.store import read_pairs

    return fields(read_pairs(store.folder), int(store.settings["seed"]))


# ---------------------------------------------------------------- telling


class BuildProgress:
    """Progress on stderr: a bar on a terminal, else a line now and then. A context manager."""

    def __init__(self, what: str, total: int, done: int) -> None:
        self.what, self.total, self.done = what, total, done
        self._begun_at, self._begun = done, time.monotonic()
        self._said = 0.0
        self._bar: Any = None
        self._id: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self.what),
                TimeRemainingColumn(),
                TextColumn("{task.description}"),
                console=rich_console(sys.stderr),
                transient=True,
            )
            self._id = self._bar.add_task("", total=self.total, completed=self.done)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, done: int, rates: str, last: str) -> None:
        """So much is done."""
        self.done = done
        if self._bar is not None:
            self._bar.update(self._id, completed=done, total=self.total, description=rates)
            return
        now = time.monotonic()
        if now - self._said >= LINE_SECONDS or done == self.total:
            self._said = now
            text = f"[{now - self._begun:6.1f}s {done}/{self.total} {self.what}, {self._left(now)}] {rates}"
            print(f"{text}; {last}" if last else text, file=sys.stderr, flush=True)

    def _left(self, now: float) -> str:
        made = self.done - self._begun_at
        left = (now - self._begun) / made * (self.total - self.done) if made else 0.0
        return f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"


def must_contain(unsafe: bool) -> None:
    """Said once, not once a task."""
    from hipwright.sandbox import SANDBOX_HINT, available

    works, why = available()
    if not (works or unsafe):
        raise SandboxMissing(f"no sandbox: {why}", hint=SANDBOX_HINT)


def cores() -> int:
    """Workers without --workers: one for each processor this process may use."""
    return len(os.sched_getaffinity(0))


def name_some(output: CommandOutput, what: str, lines: list[str]) -> None:
    """So many of something, and the first of them by name."""
    if lines:
        output.say(f"{len(lines)} {what}:")
        for line in lines[:NAMED]:
            output.say(f"  {line}")
        if len(lines) > NAMED:
            output.say(f"  and {len(lines) - NAMED} more")


def _line(bad: BadRow) -> str:
    return f"{bad.file} line {bad.line}: {bad.why}"


def _rates(report: BuildReport) -> str:
    return f"{report.pairs} pairs, {report.an_hour(report.pairs):.0f} an hour, {len(report.failures())} tasks without"


def _last(outcome: Any) -> str:
    return f"{outcome.name}: {outcome.status}" + (f": {outcome.why}" if outcome.why else "")


def _say_built(output: CommandOutput, report: BuildReport, out: Path) -> None:
    table = output.console()
    told = report.to_dict()
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(report.statuses.items()))
    table.print(f"{told['pairs']} pairs of {report.tasks} tasks in {out}")
    table.print(f"tasks: {statuses}; {report.covered} with coverage of a half and more")
    table.print("tried: " + ", ".join(f"{count} {what}" for what, count in sorted(report.counts.items())))
    if report.made:
        rate, verified = report.an_hour(report.pairs), report.an_hour(report.verified)
        table.print(
            f"now: {report.made} tasks, {report.pairs} pairs and {report.evaluations} evaluations in "
            f"{report.seconds:.0f} s: {rate:.0f} pairs an hour, {verified:.0f} of them of a verified program"
        )
    name_some(output, "tasks have no verified program", [_last(one) for one in report.failures()])


def _say_checked(output: CommandOutput, report: checking.CheckReport) -> None:
    told = report.to_dict()
    output.console().print(
        f"{told['checked']} of {report.rows} rows verified again from scratch on secret inputs, "
        f"{told['correct']} of them of a right program: {len(report.wrong)} wrong"
    )
    name_some(output, "rows are wrong", [f"{one.key} ({one.task}, {one.kind}): {one.wrong}" for one in report.wrong])
    name_some(output, "rows could not be looked at", [f"{one.key} ({one.task}): {one.void}" for one in report.void])
