"""One lane of a benchmark: it opens a task, lets the engine write a program where none is given, and judges it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.archive import Archive
from hipwright.cli.bench_search import Searched, Searcher
from hipwright.errors import ProviderError
from hipwright.evaluation.bench import BenchRow, ModelSample, failed_row, row_of
from hipwright.evaluation.faults import as_error, failed_by_machine
from hipwright.evaluation.program_stages import compile_ahead
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.events import silent
from hipwright.machine import Machine, Workbench
from hipwright.program.knobs import text_with_knobs
from hipwright.records import Evaluation, Program, TolerancePolicy
from hipwright.verify import Oracle

if TYPE_CHECKING:
    from hipwright.cli.bench_llm import ModelConnection
    from hipwright.cli.benching import BenchEntry, BenchRequest


class BenchWorker:
    """A Device of the dispatcher. One task is open at a time; it stays open while its candidates last."""

    def __init__(
        self, name: str, machine: Machine, archive: Archive, wanted: BenchRequest, line: ModelConnection | None = None
    ) -> None:
        self.name = name
        self.host, self.archive = machine.host, archive
        self._machine = machine
        self._wanted = wanted
        self._line = line
        self._task = ""
        self._stack = ExitStack()
        self._bench: Workbench | None = None
        self._kernelbench: Oracle | None = None
        self._stopping = threading.Event()

    def build_ahead(self, program: Program) -> None:
        """Compile for this worker's GPU, so that the evaluation finds it in the cache. What fails, fails there again
        and
        is told there."""
        compile_ahead(program, self._machine.gpus)

    def prepare(self, job: EvaluationJob) -> None:
        """Open the job's task, unless it is open."""
        self._stopping.clear()
        if self._bench is not None and self._task == job.group:
            return
        self.close()
        entry: BenchEntry = job.payload
        opened = self._machine.open(entry.task.path, seed=self._wanted.seed, listener=silent)
        self._bench, self._task = self._stack.enter_context(opened), job.group
        if self._wanted.mode == "kernelbench":
            policy = TolerancePolicy(mode="kernelbench")
            self._kernelbench = Oracle(self._bench.handle, seed=self._wanted.seed, policy=policy)

    def evaluate(self, job: EvaluationJob, built: Any) -> BenchRow:
        """The finished row."""
        entry: BenchEntry = job.payload
        try:
            found = Searched(built, 0, entry.asked) if built is not None else self._searched(entry)
        except ProviderError as error:  # another lane would ask the same provider
            return failed_row(error, **entry.names, asked=ModelSample(model=entry.candidate))
        program = found.program
        if isinstance(program, Evaluation):  # nothing that was written passed
            return self._row(entry, program, None, None, found)
        winner = entry.program is None  # of a search: judged again, and measured again in fresh processes
        judged = self._bench_now.evaluator.evaluate(program, self._kernelbench or self._fresh(entry), thorough=winner)
        strict = None
        if self._kernelbench is not None:
            strict = self._bench_now.evaluator.evaluate(program, self._fresh(entry))
        return self._row(entry, judged, strict, program, replace(found, evaluations=found.evaluations + 1))

    def abort(self) -> None:
        """Kill what runs: the evaluation that waits for it raises. The processes start again with the next job."""
        self._stopping.set()
        self._machine.close()

    def close(self) -> None:
        """Leave the task."""
        self._bench, self._kernelbench, self._task = None, None, ""
        self._stack.close()
        self._stack = ExitStack()

    # ---------------------------------------------------------------- one row

    @property
    def _bench_now(self) -> Workbench:
        assert self._bench is not None
        return self._bench

    def _fresh(self, entry: BenchEntry) -> Oracle | None:
        """Inputs drawn after the program was fixed: the engine searched with the evaluator's own; a file was there."""
        if entry.program is not None:
            return None
        return Oracle(self._bench_now.handle, seed=self._wanted.seed)

    def _searched(self, entry: BenchEntry) -> Searched:
        """A program for a row that has none: the engine's, or of one sample of the models with the engine."""
        wanted = self._wanted
        seed = wanted.seed or 0
        searcher = Searcher(self.archive, wanted.targets, wanted.budget, seed, self._stopping.is_set)
        if wanted.models is None or self._line is None:
            found = searcher.engine(self._bench_now)
        else:
            found = searcher.pipeline(self._bench_now, wanted.models, self._line, entry.sample)
        if isinstance(found.program, Program):
            self._write(entry, found.program)
        return found

    def _write(self, entry: BenchEntry, program: Program) -> None:
        """The engine's program as a file, named like its task; a sample's below that name."""
        from hipwright.api.files import write_file

        if self._wanted.out is not None:
            sample = f"{entry.task.name}/sample_{entry.sample}" if self._wanted.models else entry.task.name
            path = self._wanted.out / "programs" / f"{sample}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, text_with_knobs(program))

    def _row(
        self, entry: BenchEntry, judged: Evaluation, strict: Evaluation | None, program: Program | None, found: Searched
    ) -> BenchRow:
        for one in (judged, strict):
            if one is not None and failed_by_machine(one):
                raise as_error(one)
        names = entry.names
        if program is not None:
            names |= {"form": program.form, "program": program.key}
        row = row_of(judged, strict=strict, **names)
        return msgspec.structs.replace(row, evaluations=found.evaluations, asked=found.asked)
