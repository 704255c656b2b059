"""The work behind `bench`: what there is to judge, the lanes that judge it, and what is handed over."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

import hipwright
from hipwright import config
from hipwright.archive import Archive
from hipwright.cli import session
from hipwright.cli.bench_lane import Lane
from hipwright.cli.bench_results import hand_over
from hipwright.cli.output import Face, clean
from hipwright.errors import BadInput
from hipwright.evaluate.bench import GPU_TARGETS, BenchRow, RowStore, failed_row, missing_row
from hipwright.evaluate.pool import Dispatcher, Outcome, Step
from hipwright.evaluate.schedule import Job
from hipwright.evaluate.suite import CandidateFile, TaskFile, find_tasks, match_candidates
from hipwright.program.modelnew_check import lane_of
from hipwright.records import Program, content_key
from hipwright.sandbox import gpu_count

INTERRUPTED = 130
HANG_S = 600.0  # one evaluation takes less: each of its steps has a limit of its own


@dataclass(frozen=True)
class Wanted:
    """What the command line asked for."""

    suite: Path
    candidates: Path | None
    level: int | None
    gpus: str
    mode: Literal["strict", "kernelbench"]
    targets: tuple[str, ...]
    out: Path | None
    resume: bool
    budget: int
    seed: int | None
    workers: int | None
    unsafe: bool


@dataclass(frozen=True)
class Entry:
    """One row to be. program: None when the engine is to write it; candidate: "engine" then, "" when there is none."""

    task: TaskFile
    candidate: str
    sample: int
    key: str
    program: Program | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The row's own names."""
        lane = self.program.lane if self.program else ""
        program = self.program.key if self.program else ""
        return {"key": self.key, "task": self.task.name, "level": self.task.level, "candidate": self.candidate,
                "sample": self.sample, "lane": lane, "program": program}  # fmt: skip


@dataclass
class Bench:
    """One benchmark: its entries in order, its rows so far, and files that belong to no task."""

    wanted: Wanted
    entries: list[Entry]
    store: RowStore
    strangers: list[Path] = field(default_factory=list)
    interrupted: bool = False

    @property
    def rows(self) -> list[BenchRow]:
        """The rows there are, in the order of the entries."""
        known = self.store.rows
        return [known[entry.key] for entry in self.entries if entry.key in known]


def run(face: Face, wanted: Wanted) -> int:
    """Judge what is missing, hand over everything, return the exit code."""
    bench = _plan(wanted)
    if bench.strangers:
        names = ", ".join(path.name for path in bench.strangers[:5])
        face.say(f"{len(bench.strangers)} files belong to no task and are left out: {names}")
    todo = [entry for entry in bench.entries if bench.store.done(entry.key) is None]
    if done := len(bench.entries) - len(todo):
        face.say(f"{done} of {len(bench.entries)} rows are there already")
    try:
        _judge(face, bench, todo)
    except KeyboardInterrupt:
        bench.interrupted = True
    hand_over(face, bench)
    if bench.interrupted:
        again = "go on with --resume" if wanted.out is not None else "with --out DIR it could be resumed"
        face.say(f"interrupted after {len(bench.rows)} of {len(bench.entries)} rows: nothing is lost; {again}")
        return INTERRUPTED
    return 3 if any(not row.judged and row.fault != "task" for row in bench.rows) else 0


# ---------------------------------------------------------------- what there is to judge


def _plan(wanted: Wanted) -> Bench:
    gpu_numbers(wanted.gpus, wanted.targets)
    tasks = find_tasks(wanted.suite, wanted.level)
    matched = match_candidates(wanted.candidates, tasks) if wanted.candidates is not None else None
    entries = []
    for task in tasks:
        text = session.read_text(task.path, "task")
        if matched is None:
            key = _key(wanted, task, text, f"engine budget {wanted.budget} seed {wanted.seed}")
            entries.append(Entry(task, "engine", 0, key))
        else:
            entries += _candidates(wanted, task, text, matched.candidates.get(task.name, []))
    store = RowStore(wanted.out)
    if store.rows and not wanted.resume:
        raise BadInput(
            f"{wanted.out} already holds a benchmark", hint="--resume goes on with it, or choose another --out"
        )
    return Bench(wanted, entries, store, matched.strangers if matched else [])


def _candidates(wanted: Wanted, task: TaskFile, text: str, files: Sequence[CandidateFile]) -> list[Entry]:
    if not files:
        return [Entry(task, "", 0, _key(wanted, task, text, "no candidate"))]
    entries = []
    for file in files:
        source = session.read_text(file.path, "candidate")
        program = Program(lane="modelnew" if lane_of(source) == "modelnew" else "program", text=source)
        entries.append(
            Entry(task, file.path.name, file.sample, _key(wanted, task, text, program.key, str(file.sample)), program)
        )
    return entries


def _key(wanted: Wanted, task: TaskFile, text: str, *program: str) -> str:
    """Names all that decides a row, but the machine's own luck."""
    settings = (hipwright.__version__, wanted.mode, ",".join(wanted.targets), str(wanted.seed))
    return content_key("bench", *settings, task.name, text, *program)


# ---------------------------------------------------------------- judging


def _judge(face: Face, bench: Bench, todo: list[Entry]) -> None:
    for entry in [entry for entry in todo if not entry.candidate]:
        names = {name: value for name, value in entry.names.items() if name != "candidate"}
        bench.store.add(missing_row(**names))
        todo.remove(entry)
    if not todo:
        return
    jobs = [Job(entry.key, entry.task.name, entry) for entry in todo]
    progress = _Progress(face, len(bench.entries), len(bench.entries) - len(todo))
    with ExitStack() as stack:
        archive = stack.enter_context(Archive(bench.wanted.out / "archive" if bench.wanted.out else config.home()))
        lanes = _lanes(bench.wanted, archive, stack, min(len(jobs), _workers(bench.wanted)))
        hang_s = HANG_S * (1 if bench.wanted.candidates is not None else bench.wanted.budget + 1)
        dispatcher = Dispatcher(lanes, lambda job: Step(job.payload.program), hang_s=hang_s, listener=progress.event)
        dispatcher.run(jobs, on_done=lambda outcome: progress.row(_keep(bench, outcome)))


def _keep(bench: Bench, outcome: Outcome) -> BenchRow:
    entry: Entry = outcome.job.payload
    row: BenchRow = outcome.value if outcome.error is None else failed_row(outcome.error, **entry.names)
    row = replace(row, seconds=round(sum(outcome.seconds.values()), 3), attempts=outcome.attempts)
    bench.store.add(row)
    return row


def gpu_numbers(given: str, targets: Sequence[str]) -> tuple[int, ...]:
    """Which GPUs to use; none where no target runs on one. BadInput for numbers that make no sense or are not here."""
    kind: Literal["cuda", "rocm"] | None = next((name for name in GPU_TARGETS if name in targets), None)
    count = gpu_count(kind) if kind is not None else 0
    if given == "all":
        return tuple(range(count))
    words = [word.strip() for word in given.split(",")]
    if not all(word.isdecimal() for word in words):
        raise BadInput(f"--gpus {given}: not `all` or numbers like 0,1")
    if kind is None:
        raise BadInput(f"--gpus {given}: no target that runs on a GPU is chosen", hint="--target cuda or --target rocm")
    numbers = tuple(dict.fromkeys(map(int, words)))
    if bad := [number for number in numbers if number >= count]:
        raise BadInput(f"--gpus {given}: there is no {kind} GPU {bad[0]}", hint=f"this machine has {count}")
    return numbers


def _workers(wanted: Wanted) -> int:
    return wanted.workers or max(1, (os.cpu_count() or 2) // 2)


def _lanes(wanted: Wanted, archive: Archive, stack: ExitStack, count: int) -> list[Lane]:
    lanes = []
    for number in range(count):
        machine = stack.enter_context(session.machine(wanted.targets, unsafe=wanted.unsafe))
        lane = Lane(f"cpu lane {number}", machine, archive, wanted)
        stack.callback(lane.close)
        lanes.append(lane)
    return lanes


class _Progress:
    """One line a row on stderr, and faults of the machine as they are met."""

    def __init__(self, face: Face, total: int, done: int) -> None:
        self._face, self._total, self._done = face, total, done
        self._lock = threading.Lock()

    def row(self, row: BenchRow) -> None:
        """A row is there."""
        self._done += 1
        speed = "".join(f", {one.speedup:.2f}x {name}" for name, one in row.speedups.items())
        why = f": {row.message}" if row.message and not row.correct else ""
        self._say(f"[{self._done}/{self._total}] {row.task}: {row.status}{speed} ({row.seconds:.1f} s){why}")

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """The dispatcher's own news."""
        words = {
            "retry": "{job}: tried again after: {error}",
            "hang": "{device} is stuck for {seconds:.0f} s: aborted",
            "device_lost": "{device} is given up: {why}",
        }
        if kind in words:
            self._say(words[kind].format(**data))

    def _say(self, text: str) -> None:
        with self._lock:
            print(clean(text)[:300], file=sys.stderr, flush=True)
