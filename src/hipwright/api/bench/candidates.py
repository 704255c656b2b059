"""The measurement of `hipwright bench`: the row of a candidate of an open task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright import config
from hipwright.api.bench.search import SearchedProgram, SearchSetup, engine_search, pipeline_search
from hipwright.api.bench.tasks import task_input
from hipwright.api.files import write_file
from hipwright.archive import Archive
from hipwright.errors import ProviderError
from hipwright.evaluation.bench import BenchRow, ModelSample, failed_row, row_of
from hipwright.evaluation.faults import as_error, failed_by_machine
from hipwright.evaluation.program_stages import compile_ahead
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.machine import Machine, TaskText, Workbench
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Evaluation, Program, TolerancePolicy
from hipwright.verify import Oracle

if TYPE_CHECKING:
    from hipwright.api.bench.plan import BenchEntry, BenchRequest
    from hipwright.api.model_access import LoggedClient


NEVER_COMPARED = ("parse_error", "compile_error", "hack")
"""Statuses of candidates that no tolerance can help."""


@dataclass(frozen=True)
class OpenBenchTask:
    """An open task, and the oracles of KernelBench's rule where that is the benchmark's mode, and of its format's."""

    bench: Workbench
    kernelbench: Oracle | None
    by_format: Oracle | None = None


@dataclass(frozen=True)
class CandidateMeasurement:
    """Judges a benchmark's candidates; where an entry has none, searches for one first.

    logged: client of the models.
    """

    request: BenchRequest
    archive: Archive
    logged: LoggedClient | None = None

    def task(self, job: EvaluationJob) -> Path | TaskText:
        """The file of a job's task, or its text."""
        entry: BenchEntry = job.payload
        return task_input(entry.task)

    def opened(self, job: EvaluationJob, bench: Workbench, begun: float) -> OpenBenchTask:
        """The task with the oracles that its candidates need."""
        oracle = None
        if self.request.mode == "kernelbench":
            policy = TolerancePolicy(mode="kernelbench")
            oracle = Oracle(bench.handle, seed=self.request.seed, policy=policy)
        entry: BenchEntry = job.payload
        own = entry.task.rule.policy if entry.task.rule is not None else None
        if own is None or bench.evaluator.gpus:  # the device compares by KernelBench's numbers
            return OpenBenchTask(bench, oracle)
        return OpenBenchTask(bench, oracle, Oracle(bench.handle, seed=self.request.seed, policy=own))

    def measure(self, job: EvaluationJob, opened: OpenBenchTask, built: Any, stop: Callable[[], bool]) -> BenchRow:
        """The row of a job. built: its program, or None where a search has to find one."""
        entry: BenchEntry = job.payload
        try:
            if built is not None:
                found = SearchedProgram(built, 0, asked=entry.asked)
            else:
                found = self._searched(entry, opened.bench, stop)
        except ProviderError as error:  # another worker would ask the same provider
            return failed_row(error, **entry.names, asked=ModelSample(model=entry.candidate))
        program = found.program
        if isinstance(program, Evaluation):  # no program passed
            return _row(entry, program, None, None, found)
        judged, strict, made = self._judged(opened, program, found.judged)
        row = _row(entry, judged, strict, program, replace(found, evaluations=found.evaluations + made))
        return msgspec.structs.replace(row, by_format=self._by_format(opened, program, judged))

    def _by_format(self, opened: OpenBenchTask, program: Program, judged: Evaluation) -> str | None:
        """The status by the format's own tolerance; None where it has none or the program was never compared."""
        if opened.by_format is None or judged.status in NEVER_COMPARED:
            return None
        found = opened.bench.evaluator.evaluate(program, opened.by_format, timed=False)
        return None if failed_by_machine(found) else found.status

    def _judged(
        self, opened: OpenBenchTask, program: Program, confirmed: Evaluation | None
    ) -> tuple[Evaluation, Evaluation | None, int]:
        """The evaluation by the benchmark's rule, in KernelBench's mode also the strict one, and how many were made.

        confirmed: the strict one of a search's winner, on inputs drawn after the program was fixed.
        """
        evaluate = opened.bench.evaluator.evaluate
        if opened.kernelbench is None:
            return (evaluate(program), None, 1) if confirmed is None else (confirmed, None, 0)
        judged = evaluate(program, opened.kernelbench, thorough=confirmed is not None)
        return judged, confirmed or evaluate(program), 1

    def _searched(self, entry: BenchEntry, bench: Workbench, stop: Callable[[], bool]) -> SearchedProgram:
        """A program for a row without one: the engine's, or of one sample of the models with the engine."""
        request = self.request
        setup = SearchSetup(self.archive, request.targets, request.budget, request.seed or 0, stop, inputs=request.seed)
        if request.models is None or self.logged is None:
            found = engine_search(setup, bench)
        else:
            found = pipeline_search(setup, bench, request.models, self.logged, entry.sample)
        if isinstance(found.program, Program):
            keep_program(request, entry, text_with_knobs(found.program))
        return found


def bench_archive(request: BenchRequest) -> Archive:
    """The archive of a benchmark's searches: in its folder, or the user's without one."""
    return Archive(request.out / "archive" if request.out else config.archive())


def keep_program(request: BenchRequest, entry: BenchEntry, text: str) -> None:
    """Writes a program into the benchmark's folder: programs/TASK.py, or programs/TASK/sample_N.py of models."""
    if request.out is not None:
        name = f"{entry.task.name}/sample_{entry.sample}" if request.models else entry.task.name
        path = request.out / "programs" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)


def build_ahead(machine: Machine, job: EvaluationJob) -> Program | None:
    """Compiles a job's program for a machine's GPUs, so that evaluations find it in the cache; returns the program.

    The GPUs of a benchmark are alike: one machine builds for all. Errors are ignored here; they occur again in the
    evaluation.
    """
    program: Program | None = job.payload.program
    if program is not None:
        compile_ahead(program, machine.gpus)
    return program


def _row(
    entry: BenchEntry, judged: Evaluation, strict: Evaluation | None, program: Program | None, found: SearchedProgram
) -> BenchRow:
    """The row of an evaluation. Raises the machine's faults, so that the dispatcher retries."""
    for one in (judged, strict):
        if one is not None and failed_by_machine(one):
            raise as_error(one)
    names = entry.names
    if program is not None:
        names |= {"form": program.form, "program": program.key}
    row = row_of(judged, strict=strict, **names)
    left_out = (*row.left_out, *entry.task.notes)
    more: dict[str, Any] = {"asked": found.asked, "given_up": found.given_up, "left_out": left_out}
    return msgspec.structs.replace(row, evaluations=found.evaluations, **more)
