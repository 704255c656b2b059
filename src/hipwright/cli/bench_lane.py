"""One lane of a benchmark: it opens a task, lets the engine write a program where none is given, and judges it."""

from __future__ import annotations

import contextlib
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from hipwright.archive import Archive
from hipwright.cli.bench_search import Searched, Searcher
from hipwright.errors import HipwrightError, ProviderError
from hipwright.evaluation.bench import BenchRow, ModelSample, failed_row, row_of
from hipwright.evaluation.faults import as_error, failed_by_machine
from hipwright.evaluation.gate import Gate
from hipwright.evaluation.pool import StageResult
from hipwright.evaluation.schedule import EvaluationJob
from hipwright.events import silent
from hipwright.machine import Machine, Workbench
from hipwright.program import parse
from hipwright.program.settle import settled
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
        self.gate = Gate()  # this lane's own: whoever times on a GPU enters that GPU's
        self._machine = machine
        self._wanted = wanted
        self._line = line
        self._task = ""
        self._stack = ExitStack()
        self._bench: Workbench | None = None
        self._kernelbench: Oracle | None = None
        self._stopping = threading.Event()

    def build_ahead(self, program: Program) -> None:
        """Compile for this lane's GPU, so that the evaluation finds it in the cache. What fails, fails there again and
        is told there."""
        if program.form == "program" and self._machine.gpus:
            with contextlib.suppress(HipwrightError):
                parsed = parse(program.text)
                for gpu in self._machine.gpus.values():
                    gpu.build(parsed.hip, parsed.defines(program.knobs))

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

    def verify(self, job: EvaluationJob, built: Any) -> StageResult:
        """The finished row. An evaluator times what it verified, behind the GPU's own gate."""
        entry: BenchEntry = job.payload
        try:
            found = Searched(built, 0, entry.asked) if built is not None else self._searched(entry)
        except ProviderError as error:  # another lane would ask the same provider
            return StageResult(failed_row(error, **entry.names, asked=ModelSample(model=entry.candidate)), final=True)
        program = found.program
        if isinstance(program, Evaluation):  # nothing that was written passed
            return StageResult(self._row(entry, program, None, None, found), final=True)
        winner = entry.program is None  # of a search: judged again, and measured again in fresh processes
        judged = self._bench_now.evaluator.evaluate(program, self._kernelbench or self._fresh(entry), thorough=winner)
        strict = None
        if self._kernelbench is not None:
            strict = self._bench_now.evaluator.evaluate(program, self._fresh(entry))
        return StageResult(
            self._row(entry, judged, strict, program, replace(found, evaluations=found.evaluations + 1)), final=True
        )

    def time(self, job: EvaluationJob, verified: Any) -> Any:
        """Never asked for: every Step of `verify` is final."""
        return verified

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
            write_file(path, settled(program))

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
