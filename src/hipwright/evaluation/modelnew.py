"""Evaluates ModelNew candidates: they run as they are, in a process that is used once (docs/modelnew.md).

Static rules first; then the extensions are built, contained; then the file runs where its target is. On the cpu target
native code cannot run, so a file that has any is converted to a program, which is judged like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hipwright.errors import ProgramError
from hipwright.evaluation.results import NOT_ASKED, Findings, environment, library_shares, rejected
from hipwright.measure.cost import coverage
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew import build as build
from hipwright.program.modelnew.check import vet
from hipwright.records import Evaluation, Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import GPU_WORKER, GpuCandidates
from hipwright.verify.gpu.verifier import verify_gpu
from hipwright.verify.reply import checked_trace

if TYPE_CHECKING:
    from hipwright.evaluation.gpu_grounds import Gate
    from hipwright.evaluation.gpu_task import GpuTask
    from hipwright.evaluation.pipeline import Evaluator

PRELOAD = ("torch", GPU_WORKER.partition(":")[0], "hipwright.program.modelnew.warm")
OFFLINE = "a ModelNew file that is not converted has no program to compile for this target"
SEED = 0  # under which ModelNew is constructed; its state is then set from the task's


class ModelNewEvaluator:
    """Judges ModelNew files for one evaluator."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._handle = evaluator.handle

    def evaluate(self, program: Program, oracle: Oracle, found: Findings, gate: Gate, timed: bool) -> Evaluation:
        """Every target in turn; the first that rejects decides. Raises what `vet` and the builds raise."""
        warnings = vet(program.text)
        for name in (n for n in self._evaluator.targets if n not in ("cpu", *self._evaluator.gpus)):
            found.untimed[name] = OFFLINE
        ops: list[dict[str, Any]] = []
        if "cpu" in self._evaluator.targets:
            if (converted := self._converted(program)) is not None:
                return self._as_program(converted, program, oracle, gate, timed)
            build.check_target(program.text, "cpu")
            with self._on_cpu() as worker:
                verdict, ops = self._judged(program, oracle, worker, {}, gate)
            found.verdicts["cpu"] = _warned(verdict, warnings, {"modelnew": "torch"})
            if not verdict.passed:
                return rejected(self._handle.task.key, program, found.verdicts["cpu"], found, where="cpu")
        for name, gpu in self._evaluator.gpus.items():
            failed, ops = self._on_gpu(name, gpu, program, oracle, found, gate, timed, warnings)
            if failed is not None:
                return rejected(self._handle.task.key, program, failed, found, where=name)
        return self._finish(program, found, ops)

    # ---------------------------------------------------------------- targets

    def _converted(self, program: Program) -> Program | None:
        """The file as a program, where its host code is simple enough."""
        try:
            return from_modelnew(program.text, self._handle.task.source)
        except ProgramError:
            return None

    def _as_program(self, converted: Program, program: Program, oracle: Oracle, gate: Gate, timed: bool) -> Evaluation:
        """The converted program's evaluation under the file's own key; every verdict says so."""
        judged = self._evaluator.evaluate(converted, oracle, gate=gate, timed=timed)
        targets = {
            name: replace(result, verdict=_warned(result.verdict, [], {"modelnew": "converted"}))
            if result.verdict is not None
            else result
            for name, result in judged.targets.items()
        }
        return replace(judged, program=program.key, targets=targets)

    @contextmanager
    def _on_cpu(self) -> Iterator[GpuCandidates]:
        unsafe, cache, limits = self._evaluator.unsafe, self._evaluator.cache, self._evaluator.limits
        with (
            Zygote(PRELOAD, ro=(cache.folder,), unsafe=unsafe, name="ModelNew worker") as zygote,
            GpuCandidates(zygote, "cpu", "cpu", cache, limit_s=limits.wall_s) as worker,
        ):
            yield worker

    def _on_gpu(
        self,
        name: str,
        gpu: GpuTask,
        program: Program,
        oracle: Oracle,
        found: Findings,
        gate: Gate,
        timed: bool,
        warnings: list[str],
    ) -> tuple[Verdict | None, list[dict[str, Any]]]:
        """(the verdict that rejects, the library's operators)."""
        seen = self._as_program_on(gpu, program, oracle)
        if seen is not None and seen.status == "out_of_bounds":
            return _warned(seen, warnings, {"modelnew": "converted"}), []
        prepared = self._prepared(name, gpu.gpu.architecture, program)
        more = self._arguments(prepared, program)
        with gpu.gpu.foreign(prepared.profile) as worker:
            with gpu.gpu.door.shared():
                verdict, ops = self._judged(program, oracle, worker, more, gate, gpu)
            found.verdicts[name] = _warned(verdict, warnings, dict(prepared.checks))
            if not verdict.passed:
                return found.verdicts[name], ops
            if not timed:
                found.untimed[name] = NOT_ASKED
                return None, ops
            outline = self._handle.outline(self._handle.task.workloads[0].name)
            known = found.judged_at(name, gpu.workload)
            result = gpu.time(
                program, None, gate=gate, outline=outline, again=False, known=known, worker=worker, more=more
            )
        found.timed(name, result, gpu.workload)
        return result.verdict, ops

    def _as_program_on(self, gpu: GpuTask, program: Program, oracle: Oracle) -> Verdict | None:
        """The fast gate on the file as a program, whose memory lies between red zones: what host code allocates for
        itself does not. None where there is no such program. Only its strays count against the file."""
        converted = self._converted(program)
        if converted is None:
            return None
        parsed = parse(converted.text)
        built = gpu.build(parsed, parsed.defines(converted.knobs))
        if not built.ok:
            return None
        verdict = gpu.verify(parsed, converted, built, oracle, gate="fast")
        return replace(verdict, message=f"converted to a program: {verdict.message}" if verdict.message else "")

    def _prepared(self, target: str, arch: str, program: Program) -> build.PreparedModelNew:
        with ExitStack() as stack:
            zygote = Zygote(PRELOAD, unsafe=self._evaluator.unsafe, name="ModelNew discovery")
            stack.enter_context(zygote)  # starts only where the file must run to tell what it builds
            return build.prepare(
                program.text,
                target=target,
                arch=arch,
                cache=self._evaluator.cache,
                zygote=zygote,
                init_inputs=self._handle.init_inputs(SEED),
                unsafe=self._evaluator.unsafe,
            )

    def _arguments(self, prepared: build.PreparedModelNew, program: Program) -> dict[str, Any]:
        return {**build.arguments(prepared, program.text, SEED), "init_inputs": self._handle.init_inputs(SEED)}

    # ---------------------------------------------------------------- verdict and records

    def _judged(
        self,
        program: Program,
        oracle: Oracle,
        worker: GpuCandidates,
        more: dict[str, Any],
        gate: Gate,
        gpu: GpuTask | None = None,
    ) -> tuple[Verdict, list[dict[str, Any]]]:
        """The verdict, and what the library did at the shapes of `_traced`."""
        more = more or {"seed": SEED, "init_inputs": self._handle.init_inputs(SEED)}
        reference = gpu.reference if gpu is not None and gate == "full" else None
        verdict = verify_gpu(None, program, None, oracle, reference, worker, gate=gate, more=more)
        if not verdict.passed:
            return verdict, []
        case = oracle.case(self._traced(oracle), "given")
        with worker.load(program, None, oracle.state, more=more) as loaded:
            told = loaded.operators(case)
        return verdict, checked_trace({"ops": told, "calls": [], "launches": []})["ops"]

    def _traced(self, oracle: Oracle) -> str:
        """The workload whose operators are counted: the task's own where the oracle holds it, else a small one."""
        planned = oracle.planned()
        return next((p.workload.name for p in planned if p.role == "full"), planned[0].workload.name)

    def _finish(self, program: Program, found: Findings, ops: list[dict[str, Any]]) -> Evaluation:
        reference = self._handle.outline(self._traced(self._evaluator.oracle)).ops
        shares = library_shares([{"name": op["op"], "ops": [op]} for op in ops], reference)
        return Evaluation(
            task=self._handle.task.key,
            program=program.key,
            status="pass",
            targets=found.results(),
            coverage=round(coverage(ops, reference), 4),
            library=shares,
            **found.score(),
            environment=environment(),
        )


def _warned(verdict: Verdict, warnings: list[str], checks: dict[str, Any]) -> Verdict:
    """With what the static rules noticed and how the file was built; a verdict on host code is worth less."""
    return replace(verdict, checks={**verdict.checks, **checks, "warnings": warnings, "trust": "lower"})
