"""Runs a benchmark: judges the missing rows, stores each as it is made, and reports all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from msgspec.structs import replace

from hipwright.api.bench.candidates import CandidateMeasurement, bench_archive, build_ahead, keep_program
from hipwright.api.bench.driver import HANG_S, BenchWorker, TaskWorker, WorkerPlan, open_workers, run_jobs
from hipwright.api.bench.fleet import judge_on_fleet
from hipwright.api.bench.plan import BenchEntry, BenchmarkRun, BenchRequest, plan_benchmark
from hipwright.api.bench.processes import build_in_turn, open_process_workers
from hipwright.api.bench.report import BenchmarkReport
from hipwright.api.bench.samples import draw_samples
from hipwright.api.bench.tasks import keep_texts
from hipwright.api.files import prepare_folder
from hipwright.api.model_access import LoggedClient, open_client
from hipwright.api.workbench import require_sandbox
from hipwright.archive import Archive
from hipwright.errors import BadInput
from hipwright.evaluation.bench import BenchRow, failed_row, malformed_row, missing_row
from hipwright.evaluation.pool import JobOutcome
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.events import Listener, doing, silent


def run_benchmark(request: BenchRequest, *, listener: Listener = silent) -> BenchmarkReport:
    """Judges the missing rows of a benchmark. An interrupt ends it early, with nothing lost; the report says so.

    Events for the listener: "note" {text}, "row" {row, done, total}, "retry", "hang", "device_lost" and "llm_retry".
    Raises BadInput, and SandboxMissing once for all rows.
    """
    if request.out is not None:
        prepare_folder(request.out)
    bench = plan_benchmark(request)
    if bench.place is None:
        require_sandbox(request.unsafe)
    if bench.unmatched:
        names = ", ".join(path.name for path in bench.unmatched[:5])
        text = f"{len(bench.unmatched)} files belong to no task and are left out: {names}"
        listener("note", {"text": text})
    tasks = [entry.task for entry in bench.entries]
    for problem in dict.fromkeys(task.problem for task in tasks if task.problem):
        listener("note", {"text": f"no task: {problem}"})
    if request.out is not None:
        keep_texts(request.out, tasks)
    todo = [entry for entry in bench.entries if bench.store.done(entry.key) is None]
    if done := len(bench.entries) - len(todo):
        listener("note", {"text": f"{done} of {len(bench.entries)} rows are there already"})
    try:
        _judge(bench, todo, listener)
    except KeyboardInterrupt:
        bench.interrupted = True
    return BenchmarkReport.of(bench)


def _judge(bench: BenchmarkRun, todo: list[BenchEntry], listener: Listener) -> None:
    todo = _without_candidates(bench, todo)
    if not todo:
        return
    listener = _naming_tasks(listener, todo)
    row_counter = _RowCounter(listener, len(bench.entries), len(bench.entries) - len(todo))
    if bench.place is not None:
        judge_on_fleet(bench, bench.place, todo, row_counter.row, listener)
        return
    doing("judging tasks", len(bench.entries) - len(todo), len(bench.entries))
    plan = _worker_plan(bench, len(todo))
    if bench.request.models is None and not plan.alone:
        with open_process_workers(plan, bench.request) as workers:
            _run(bench, workers, todo, build_in_turn(workers), row_counter, listener)
    else:
        _judge_here(bench, plan, todo, row_counter, listener)


def _worker_plan(bench: BenchmarkRun, jobs: int) -> WorkerPlan:
    request = bench.request
    return WorkerPlan(
        request.targets,
        bench.gpus,
        request.workers,
        jobs,
        request.unsafe,
        request.baseline_s,
        request.baselines,
        request.imported,
        processes=request.processes,
    )


def _judge_here(
    bench: BenchmarkRun, plan: WorkerPlan, todo: list[BenchEntry], row_counter: _RowCounter, listener: Listener
) -> None:
    """Judges with the workers of this process, which may ask models."""
    request, models = bench.request, bench.request.models
    with ExitStack() as stack:
        archive = stack.enter_context(bench_archive(request))
        logged = None
        if models is not None:
            logged = stack.enter_context(open_client(models.access, request.out, listener))
        measurement = CandidateMeasurement(request, archive, logged)
        workers = stack.enter_context(open_workers(plan, measurement, seed=request.seed))
        if logged is not None and models is not None and models.agent == "single-shot":
            listener("note", {"text": f"asking for {len(todo)} samples"})
            todo = _with_samples(bench, workers, archive, logged, todo, row_counter.row)
        _run(bench, workers, todo, partial(build_ahead, workers[0].machine), row_counter, listener)


def _run(
    bench: BenchmarkRun,
    workers: Sequence[BenchWorker],
    todo: Sequence[BenchEntry],
    build: Callable[[EvaluationJob], Any],
    row_counter: _RowCounter,
    listener: Listener,
) -> None:
    run_jobs(
        workers,
        [EvaluationJob(entry.key, entry.task.name, entry) for entry in todo],
        on_done=lambda outcome: row_counter.row(_keep(bench, outcome)),
        build=build,
        build_workers=max(2, (os.cpu_count() or 2) // 2),
        hang_s=HANG_S * (1 if bench.request.programs_given else bench.request.budget + 1),
        listener=listener,
    )


def _without_candidates(bench: BenchmarkRun, todo: Sequence[BenchEntry]) -> list[BenchEntry]:
    """Stores a row for each malformed task or candidate and each task without one; returns the other entries."""
    for entry in todo:
        if entry.task.problem:
            bench.store.add(failed_row(BadInput(entry.task.problem), **entry.names))
        elif entry.problem:
            bench.store.add(malformed_row(entry.problem, **entry.names))
        elif not entry.candidate:
            names = {name: value for name, value in entry.names.items() if name != "candidate"}
            bench.store.add(missing_row(**names))
    return [entry for entry in todo if entry.candidate and not entry.problem]


def _with_samples(
    bench: BenchmarkRun,
    workers: Sequence[TaskWorker],
    archive: Archive,
    logged: LoggedClient,
    todo: Sequence[BenchEntry],
    on_row: Callable[[BenchRow], None],
) -> list[BenchEntry]:
    """Asks for every sample. An answer without a program becomes a row at once; returns the entries with a program."""
    request = bench.request
    assert request.models is not None
    drawn = draw_samples(
        request.models,
        logged,
        workers[0].machine.host,
        archive,
        todo,
        targets=request.targets,
        workers=len(workers),
    )
    left = []
    for entry, row in drawn:
        if row is not None:
            bench.store.add(row)
            on_row(row)
        elif entry.program is not None:
            keep_program(request, entry, entry.program.text)
            left.append(entry)
    return left


def _keep(bench: BenchmarkRun, outcome: JobOutcome) -> BenchRow:
    """The row of an outcome, with its seconds and attempts; adds it to the store."""
    entry: BenchEntry = outcome.job.payload
    row: BenchRow = outcome.value if outcome.error is None else failed_row(outcome.error, **entry.names)
    seconds = round(sum(outcome.seconds.values()), 3)
    waited = round(outcome.waited, 3)
    row = replace(row, seconds=seconds, waited=waited, attempts=outcome.attempts, asked=row.asked or entry.asked)
    bench.store.add(row)
    return row


def _naming_tasks(listener: Listener, entries: Sequence[BenchEntry]) -> Listener:
    """A listener that hears a job's task and, of several candidates, its sample, in place of its key."""
    named = {entry.key: entry.task.name + (f" sample {entry.sample}" if entry.sample else "") for entry in entries}

    def tell(kind: str, data: dict[str, Any]) -> None:
        listener(kind, {**data, "job": named.get(data["job"], data["job"])} if "job" in data else data)

    return tell


class _RowCounter:
    """Numbers rows for the listener."""

    def __init__(self, listener: Listener, total: int, done: int) -> None:
        self._listener, self._total, self._done = listener, total, done

    def row(self, row: BenchRow) -> None:
        """Reports a row to the listener."""
        self._done += 1
        self._listener("row", {"row": row, "done": self._done, "total": self._total})
