"""The work behind `bench`: what there is to judge, the lanes that judge it, and what is handed over."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

import hipwright
from hipwright import config
from hipwright.api.files import read_text
from hipwright.api.plain import clean
from hipwright.archive import Archive
from hipwright.cli import bench_llm, exit_codes
from hipwright.cli.bench_lane import BenchWorker
from hipwright.cli.bench_llm import Models
from hipwright.cli.bench_results import hand_over
from hipwright.cli.output import CommandOutput
from hipwright.device import topology
from hipwright.device.gpu_info import GpuInfo
from hipwright.errors import BadInput, SandboxMissing
from hipwright.evaluation.bench import BenchRow, ModelSample, RowStore, failed_row, missing_row
from hipwright.evaluation.pool import Dispatcher, JobOutcome
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.evaluation.suite import BenchTask, CandidateFile, find_tasks, match_candidates
from hipwright.machine import machine as open_machine
from hipwright.program.modelnew.check import form_of
from hipwright.records import Program, content_key
from hipwright.sandbox import SANDBOX_HINT, available
from hipwright.targets import TARGETS

GPU_LANES = 4  # tasks at a time on one GPU, if there are four processors for each: opening one takes seconds
HANG_S = 600.0  # one evaluation takes less: each of its steps has a limit of its own


@dataclass(frozen=True)
class BenchRequest:
    """What the command line asked for. models: None unless models are measured."""

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
    models: Models | None = None


@dataclass(frozen=True)
class BenchEntry:
    """One row to be. candidate: a file's name, a model's, "engine", or "" when there is none.

    program: None when it is still to be written. asked: what a model's answer cost, once it is there.
    """

    task: BenchTask
    candidate: str
    sample: int
    key: str
    program: Program | None = None
    asked: ModelSample | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The row's own names."""
        form = self.program.form if self.program else ""
        program = self.program.key if self.program else ""
        return {
            "key": self.key,
            "task": self.task.name,
            "level": self.task.level,
            "candidate": self.candidate,
            "sample": self.sample,
            "form": form,
            "program": program,
        }


@dataclass
class BenchmarkRun:
    """One benchmark: its entries in order, its rows so far, the GPUs it runs on, files of no task."""

    wanted: BenchRequest
    entries: list[BenchEntry]
    store: RowStore
    gpus: list[GpuInfo]
    strangers: list[Path] = field(default_factory=list)
    interrupted: bool = False

    @property
    def rows(self) -> list[BenchRow]:
        """The rows there are, in the order of the entries."""
        known = self.store.rows
        return [known[entry.key] for entry in self.entries if entry.key in known]


def run(output: CommandOutput, wanted: BenchRequest) -> int:
    """Judge what is missing, hand over everything, return the exit code."""
    bench = _plan(wanted)
    works, why = available()
    if not (works or wanted.unsafe):  # said once, not once a row
        raise SandboxMissing(f"no sandbox: {why}", hint=SANDBOX_HINT)
    if bench.strangers:
        names = ", ".join(path.name for path in bench.strangers[:5])
        output.say(f"{len(bench.strangers)} files belong to no task and are left out: {names}")
    todo = [entry for entry in bench.entries if bench.store.done(entry.key) is None]
    if done := len(bench.entries) - len(todo):
        output.say(f"{done} of {len(bench.entries)} rows are there already")
    try:
        _judge(output, bench, todo)
    except KeyboardInterrupt:
        bench.interrupted = True
    hand_over(output, bench)
    if bench.interrupted:
        again = "go on with --resume" if wanted.out is not None else "with --out DIR it could be resumed"
        output.say(f"interrupted after {len(bench.rows)} of {len(bench.entries)} rows: nothing is lost; {again}")
        return exit_codes.INTERRUPTED
    return exit_code(bench.rows)


def exit_code(rows: Sequence[BenchRow]) -> int:
    """0 when all is done, 1 when the limits in dollars or tokens kept samples from being asked for, 3 for faults of the
    machine or a provider."""
    failed = [row for row in rows if not row.judged and row.fault != "task"]
    spent = [row for row in failed if row.asked is not None and row.asked.answer == bench_llm.NOT_ASKED]
    return 0 if not failed else 1 if len(spent) == len(failed) else 3


# ---------------------------------------------------------------- what there is to judge


def _plan(wanted: BenchRequest) -> BenchmarkRun:
    gpus = gpus_of(wanted)
    where = ",".join(sorted({gpu.name for gpu in gpus}))
    tasks = find_tasks(wanted.suite, wanted.level)
    matched = match_candidates(wanted.candidates, tasks) if wanted.candidates is not None else None
    entries = []
    for task in tasks:
        text = read_text(task.path, "task")
        if wanted.models is not None:
            entries += _samples(wanted, wanted.models, where, task, text)
        elif matched is None:
            key = _key(wanted, where, task, text, f"engine budget {wanted.budget} seed {wanted.seed}")
            entries.append(BenchEntry(task, "engine", 0, key))
        else:
            entries += _candidates(wanted, where, task, text, matched.candidates.get(task.name, []))
    store = RowStore(wanted.out)
    if store.rows and not wanted.resume:
        raise BadInput(
            f"{wanted.out} already holds a benchmark", hint="--resume goes on with it, or choose another --out"
        )
    return BenchmarkRun(wanted, entries, store, gpus, matched.strangers if matched else [])


def _candidates(
    wanted: BenchRequest, where: str, task: BenchTask, text: str, files: Sequence[CandidateFile]
) -> list[BenchEntry]:
    if not files:
        return [BenchEntry(task, "", 0, _key(wanted, where, task, text, "no candidate"))]
    entries = []
    for file in files:
        source = read_text(file.path, "candidate")
        program = Program(form="modelnew" if form_of(source) == "modelnew" else "program", text=source)
        entries.append(
            BenchEntry(
                task,
                file.path.name,
                file.sample,
                _key(wanted, where, task, text, program.key, str(file.sample)),
                program,
            )
        )
    return entries


def _samples(wanted: BenchRequest, models: Models, where: str, task: BenchTask, text: str) -> list[BenchEntry]:
    entries = []
    for number in range(models.samples):
        model = models.model(wanted.seed, task.name, number)
        budget = str(wanted.budget) if models.agent == "pipeline" else ""
        key = _key(wanted, where, task, text, "model", model, models.settings, budget, str(number))
        entries.append(BenchEntry(task, model, number, key))
    return entries


def _key(wanted: BenchRequest, where: str, task: BenchTask, text: str, *program: str) -> str:
    """Names all that decides a row: also the GPUs, since a time on another model is another figure."""
    settings = (hipwright.__version__, wanted.mode, ",".join(wanted.targets), str(wanted.seed), where)
    return content_key("bench", *settings, task.name, text, *program)


# ---------------------------------------------------------------- judging


def _judge(output: CommandOutput, bench: BenchmarkRun, todo: list[BenchEntry]) -> None:
    for entry in [entry for entry in todo if not entry.candidate]:
        names = {name: value for name, value in entry.names.items() if name != "candidate"}
        bench.store.add(missing_row(**names))
        todo.remove(entry)
    if not todo:
        return
    wanted = bench.wanted
    progress = _Progress(output, len(bench.entries), len(bench.entries) - len(todo))
    with ExitStack() as stack:
        archive = stack.enter_context(Archive(wanted.out / "archive" if wanted.out else config.home()))
        line = None
        if wanted.models is not None:
            line = stack.enter_context(bench_llm.open_line(wanted.models, wanted.out, progress.event))
        lanes = _lanes(bench, archive, stack, len(todo), line)
        if line is not None and wanted.models is not None and wanted.models.agent == "single-shot":
            todo = _drawn(bench, lanes, line, todo, progress)
        hang_s = HANG_S * (1 if _written(wanted) else wanted.budget + 1)
        builders = max(2, (os.cpu_count() or 2) // 2)
        dispatcher = Dispatcher(
            lanes, partial(_build, lanes[0]), build_workers=builders, hang_s=hang_s, listener=progress.event
        )
        jobs = [EvaluationJob(entry.key, entry.task.name, entry) for entry in todo]
        dispatcher.run(jobs, on_done=lambda outcome: progress.row(_keep(bench, outcome)))


def _written(wanted: BenchRequest) -> bool:
    """Whether a job comes with its program, and does not search for one."""
    return wanted.candidates is not None or (wanted.models is not None and wanted.models.agent == "single-shot")


def _drawn(
    bench: BenchmarkRun,
    lanes: Sequence[BenchWorker],
    line: bench_llm.ModelConnection,
    todo: Sequence[BenchEntry],
    progress: _Progress,
) -> list[BenchEntry]:
    """Ask for every sample; those that came to nothing are rows at once. -> those with a program."""
    assert bench.wanted.models is not None
    progress.say(f"asking for {len(todo)} samples")
    left = []
    told = bench_llm.draw(
        bench.wanted.models,
        line,
        lanes[0].host,
        lanes[0].archive,
        todo,
        targets=bench.wanted.targets,
        workers=len(lanes),
    )
    for entry, row in told:
        if row is None:
            bench_llm.keep_program(bench.wanted.out, entry)
            left.append(entry)
        else:
            bench.store.add(row)
            progress.row(row)
    return left


def _build(lane: BenchWorker, job: EvaluationJob) -> Program | None:
    """The GPUs of a benchmark are alike: what one lane compiled, all find in the cache."""
    program: Program | None = job.payload.program
    if program is not None:
        lane.build_ahead(program)
    return program


def _keep(bench: BenchmarkRun, outcome: JobOutcome) -> BenchRow:
    entry: BenchEntry = outcome.job.payload
    row: BenchRow = outcome.value if outcome.error is None else failed_row(outcome.error, **entry.names)
    seconds = round(sum(outcome.seconds.values()), 3)
    row = replace(row, seconds=seconds, attempts=outcome.attempts, asked=row.asked or entry.asked)
    bench.store.add(row)
    return row


def gpus_of(wanted: BenchRequest) -> list[GpuInfo]:
    """The GPUs to use; none where no target runs on one. BadInput for a --gpus that makes no sense or is not here."""
    kind = next((target.name for target in TARGETS.gpus if target.name in wanted.targets), None)
    if kind is not None:
        return topology.choose(wanted.gpus, kind)
    if wanted.gpus != "all":
        hint = TARGETS.gpu_choices("--target {}")
        raise BadInput(f"--gpus {wanted.gpus}: no target that runs on a GPU is chosen", hint=hint)
    return []


def _lanes(
    bench: BenchmarkRun, archive: Archive, stack: ExitStack, jobs: int, line: bench_llm.ModelConnection | None
) -> list[BenchWorker]:
    """Lanes of one GPU share its processes and its gate: while one times, the others open tasks and compile."""
    wanted, gpus = bench.wanted, bench.gpus
    cores = os.cpu_count() or 2
    alone = max(1, cores // 2) if not gpus else max(2, min(GPU_LANES, cores // (4 * len(gpus))))
    each = wanted.workers or alone
    lanes: list[BenchWorker] = []
    for gpu in gpus:
        made = stack.enter_context(open_machine(wanted.targets, unsafe=wanted.unsafe, gpu=gpu.index))
        names = [f"{gpu.kind} {gpu.index} lane {number}" for number in range(each)]
        lanes += [BenchWorker(name, made, archive, wanted, line) for name in names]
    if not gpus:
        for number in range(min(each, jobs)):
            made = stack.enter_context(open_machine(wanted.targets, unsafe=wanted.unsafe))
            lanes.append(BenchWorker(f"cpu lane {number}", made, archive, wanted, line))
    for lane in lanes:
        stack.callback(lane.close)
    return lanes


class _Progress:
    """One line a row on stderr, and faults of the machine as they are met."""

    def __init__(self, output: CommandOutput, total: int, done: int) -> None:
        self._face, self._total, self._done = output, total, done
        self._lock = threading.Lock()

    def row(self, row: BenchRow) -> None:
        """A row is there."""
        self._done += 1
        speed = "".join(f", {one.speedup:.2f}x {name}" for name, one in row.speedups.items())
        why = f": {row.message}" if row.message and not row.correct else ""
        self.say(f"[{self._done}/{self._total}] {row.task}: {row.status}{speed} ({row.seconds:.1f} s){why}")

    def event(self, kind: str, data: dict[str, Any]) -> None:
        """The dispatcher's own news."""
        words = {
            "retry": "{job}: tried again after: {error}",
            "hang": "{device} is stuck for {seconds:.0f} s: aborted",
            "device_lost": "{device} is given up: {why}",
            "llm_retry": "{model}: {why}; asked again in {wait:.1f} s",
        }
        if kind in words:
            self.say(words[kind].format(**data))

    def say(self, text: str) -> None:
        """One line, without what a terminal would obey."""
        with self._lock:
            print(clean(text)[:300], file=sys.stderr, flush=True)
