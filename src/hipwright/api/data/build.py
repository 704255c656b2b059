"""Verified pairs of tasks and programs: built into a folder, and sampled for verification (docs/dataset.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hipwright.api.data.hooks import (
    evidence_text,
    fresh_machine,
    mutants,
    processors,
    search_pairs,
    split_fields,
)
from hipwright.api.data.synth import SynthesisJob, SynthesisResult, run_synthesis
from hipwright.api.files import prepare_folder
from hipwright.api.fleet.choice import FleetChoice
from hipwright.api.fleet.pairs import in_seats
from hipwright.api.workbench import require_sandbox
from hipwright.dataset.build import BuildReport, build, in_workers
from hipwright.dataset.check import CheckReport, check
from hipwright.dataset.make import BuildSettings, Hooks
from hipwright.dataset.records import Pair
from hipwright.dataset.rejudge import RejudgeReport, rejudge
from hipwright.dataset.store import MANIFEST, PAIRS, BadRow, DatasetStore, pair_line, read_pairs, replace_file
from hipwright.dataset.tasks import read_tasks
from hipwright.errors import BadInput
from hipwright.events import Listener, silent
from hipwright.machine import machine
from hipwright.targets import CPU, TARGETS


@dataclass(frozen=True)
class DatasetBuild:
    """The results of a build. problems: files of the folder that are no tasks; done: tasks with an outcome so far."""

    report: BuildReport
    problems: Sequence[str]
    bad: Sequence[BadRow]
    done: int
    seconds: float
    interrupted: bool = False

    def summary(self) -> dict[str, Any]:
        """The object that `dataset build --json` prints, without its folder."""
        bad = [one.to_dict() for one in self.bad]
        seconds = round(self.seconds, 1)
        return {**self.report.to_dict(), "problems": self.problems, "bad_rows": bad, "wall_s": seconds}


def build_settings(targets: tuple[str, ...], **settings: int) -> BuildSettings:
    """The settings of a build (variants, negatives, budget, seed). BadInput where the cpu target is left out."""
    if CPU.name not in targets:
        raise BadInput(f"a pair is verified on the {CPU.name} target", hint=f"add --target {CPU.name}")
    return BuildSettings(targets=targets, **settings)


def compose_tasks(
    out: Path,
    count: int,
    *,
    seed: int = 0,
    workers: int | None = None,
    resume: bool = False,
    unsafe: bool = False,
    listener: Listener = silent,
) -> SynthesisResult:
    """Composes tasks for a data set into OUT/synth. BadInput where `out` holds a data set that is not resumed."""
    prepare_folder(out)
    require_sandbox(unsafe)
    if not resume and (out / MANIFEST).exists():
        raise BadInput(f"{out} already holds a data set", hint="--resume goes on with it, or choose another --out")
    job = SynthesisJob(out / "synth", count, seed=seed, resume=resume, workers=workers or processors(), unsafe=unsafe)
    return run_synthesis(job, listener=listener)


def build_dataset(
    tasks: Path,
    out: Path,
    settings: BuildSettings,
    *,
    workers: int | None = None,
    resume: bool = False,
    unsafe: bool = False,
    fleet: FleetChoice | None = None,
    listener: Listener = silent,
) -> DatasetBuild:
    """Makes the pairs of every task of a folder that has none yet. An interrupt loses only the tasks in progress.

    fleet: whose seats make the pairs, a task a seat; None for this machine's processes.

    Events for the listener: "problems" {what, lines}, "note" {text}, "planned" {total, done}, and "built" {done,
    report, outcome} after each task.
    """
    prepare_folder(out)
    entries, problems = read_tasks(tasks)
    require_sandbox(unsafe)
    if fleet:
        maker = in_seats(fleet, settings, seats=workers, unsafe=unsafe, listener=listener)
    else:
        opener = partial(machine, settings.targets, unsafe=unsafe)
        maker = in_workers(opener, settings, Hooks(mutants, evidence_text, search_pairs), workers or processors())
    listener("problems", {"what": "in the folder of tasks", "lines": problems})
    with DatasetStore(out, settings.to_dict(), resume=resume) as store:
        lines = [bad_line(one) for one in store.bad]
        listener("problems", {"what": "unreadable lines, kept in bad.jsonl", "lines": lines})
        done = sum(store.done(entry.key) for entry in entries)
        if done:
            listener("note", {"text": f"{done} of {len(entries)} tasks are done already"})
        listener("planned", {"total": len(entries), "done": done})

        def listen(kind: str, data: dict[str, Any]) -> None:
            listener(kind, {**data, "done": done + data["report"].tasks_done})

        begun, interrupted = time.monotonic(), False
        try:
            report = build(
                entries,
                store,
                maker,
                listener=listen,
                final_fields=split_fields,
            )
        except KeyboardInterrupt:
            report, interrupted = BuildReport(len(entries)), True
        finished, bad = len(store.outcomes), list(store.bad)
    return DatasetBuild(report, problems, bad, finished, time.monotonic() - begun, interrupted)


@dataclass(frozen=True)
class DatasetCheck:
    """A sample of rows verified again, and the lines that could not be read."""

    report: CheckReport
    bad: Sequence[BadRow]

    def summary(self) -> dict[str, Any]:
        """The object that `dataset check --json` prints."""
        return {**self.report.to_dict(), "bad_rows": [one.to_dict() for one in self.bad]}


def check_dataset(
    data: Path,
    *,
    sample: int = 50,
    seed: int | None = None,
    workers: int | None = None,
    unsafe: bool = False,
    listener: Listener = silent,
) -> DatasetCheck:
    """Verifies `sample` rows (0: all) from scratch on secret inputs, on machines with empty build caches.

    Events for the listener: "planned" {total, done}, and "checked" {done, total, wrong} after each row.
    """
    require_sandbox(unsafe)
    bad: list[BadRow] = []
    listener("planned", {"total": sample, "done": 0})
    opener = partial(fresh_machine, (*TARGETS.default_offline, CPU.name), unsafe)
    count = workers or processors()
    report = check(rows_of(data, bad), opener, sample=sample, seed=seed, workers=count, listener=listener)
    return DatasetCheck(report, bad)


@dataclass(frozen=True)
class DatasetRejudging:
    """Every row judged anew, and the lines that could not be read."""

    report: RejudgeReport
    bad: Sequence[BadRow]

    def summary(self) -> dict[str, Any]:
        """The object that `dataset rejudge --json` prints, without its folder."""
        return {**self.report.to_dict(), "bad_rows": [one.to_dict() for one in self.bad]}


def rejudge_dataset(
    data: Path, out: Path, *, workers: int | None = None, unsafe: bool = False, listener: Listener = silent
) -> DatasetRejudging:
    """Judges every row of a data set or an export anew, and writes those that hold into `out`.

    Raises BadInput where `out` holds a data set. Events for the listener: "planned" {total, done}, "checked" {done,
    total, wrong} after each task.
    """
    prepare_folder(out)
    require_sandbox(unsafe)
    if (out / PAIRS).exists():
        raise BadInput(f"{out} already holds a data set", hint="choose another --out")
    bad: list[BadRow] = []
    opener = partial(machine, (*TARGETS.default_offline, CPU.name), unsafe=unsafe)
    rows = rows_of(data, bad)
    report = rejudge(rows, opener, evidence_text, workers=workers or processors(), listener=listener)
    replace_file(out / PAIRS, map(pair_line, report.kept))
    return DatasetRejudging(report, bad)


def rows_of(data: Path, bad: list[BadRow]) -> Iterator[Pair]:
    """The rows of a data set, of one file of its rows, or of an export in the format jsonl."""
    if data.is_dir() and not (data / PAIRS).exists():
        from hipwright.dataset.export import read_export

        return read_export(data, bad)
    return read_pairs(data, bad)


def bad_line(bad: BadRow) -> str:
    """An unreadable line as text: where it is, and what is wrong."""
    return f"{bad.file} line {bad.line}: {bad.why}"
