"""The stages of a candidate in the form `modelnew`: a KernelBench file, run in a process that is used once.

Static rules come first; then the extensions are built, contained; then the file runs on its target (docs/modelnew.md).
Native code cannot run on the cpu target, so a file with such code is converted to a program, which is evaluated there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from hipwright.errors import ProgramError
from hipwright.evaluation.context import EvaluationContext
from hipwright.evaluation.program_stages import keep_assessment, keep_verdict, time_stage, untimed
from hipwright.evaluation.results import Assessment, library_shares
from hipwright.evaluation.stages import EvaluationStage, EvaluationState, advance
from hipwright.measure.cost import coverage
from hipwright.measure.paired_timing import TimingResult
from hipwright.program import parse
from hipwright.program.convert.modelnew import from_modelnew
from hipwright.program.modelnew.build import PreparedModelNew, arguments, check_target, prepare
from hipwright.program.modelnew.check import vet
from hipwright.records import Evaluation, Program, Verdict
from hipwright.sandbox import Zygote
from hipwright.targets import CPU
from hipwright.verify import Oracle
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import MODELNEW_PRELOAD
from hipwright.verify.gpu.verifier import verify_gpu
from hipwright.verify.reply import checked_trace
from hipwright.verify.verification import Gate

if TYPE_CHECKING:
    from hipwright.evaluation.gpu.task import GpuTask

T = TypeVar("T")
SEED = 0  # the seed under which ModelNew is constructed; its state is then set from the task's
LESS_TRUSTED = {"trust": "lower"}
"""In the checks of each verdict on a ModelNew file: its host code runs in the process that reports the results."""


@dataclass(frozen=True)
class VettedModelNew:
    """A file that satisfies the static rules. converted: it as a program, where its host code is simple enough; reason:
    why it could not be converted.
    """

    warnings: list[str]
    converted: Program | None
    reason: str = ""


@dataclass(frozen=True)
class ModelNewSchedule:
    """Runs ModelNew files through their stages, one target after the other."""

    context: EvaluationContext
    oracle: Oracle
    gate: Gate
    timed: bool

    def run(self, state: EvaluationState) -> EvaluationState:
        """The state after the last stage; the first target that rejects decides."""
        if CPU.name in self.context.targets and state.end is None:
            state = self._on_cpu(state)
        for name, gpu in self.context.gpus.items():
            if state.end is None:
                state = self._on_gpu(state, name, gpu)
        return advance(state, self._assess_stage())

    def _on_cpu(self, state: EvaluationState) -> EvaluationState:
        state = advance(state, self._check_stage())
        if state.end is not None:
            return state
        unsafe, cache, limits = self.context.unsafe, self.context.cache, self.context.limits
        with (
            Zygote(MODELNEW_PRELOAD, ro=(cache.folder,), unsafe=unsafe, name="ModelNew worker") as zygote,
            CandidateWorker(zygote, "cpu", CPU.name, cache, limit_s=limits.wall_s) as worker,
        ):
            load_options = {"seed": SEED, "init_inputs": self.context.handle.init_inputs(SEED)}
            return advance(
                state, self._verify_stage(CPU.name, worker, load_options), self._operators_stage(worker, load_options)
            )

    def _on_gpu(self, state: EvaluationState, name: str, gpu: GpuTask) -> EvaluationState:
        state = advance(state, self._bounds_stage(name, gpu), self._prepare_stage(name, gpu))
        if state.end is not None:
            return state
        assert state.prepared is not None
        load_options = {
            **arguments(state.prepared, state.program.text, SEED),
            "init_inputs": self.context.handle.init_inputs(SEED),
        }

        def shared(work: Callable[[], T]) -> T:
            with gpu.gpu.timing_lock.shared():
                return work()

        with gpu.gpu.host_code_worker(state.prepared.profile) as worker:
            verify = self._verify_stage(name, worker, load_options, gpu)
            state = advance(state, verify, self._operators_stage(worker, load_options), run=shared)
            return advance(state, self._time_stage(name, worker, load_options)) if self.timed else untimed(state, name)

    # ---------------------------------------------------------------- stages

    def _check_stage(self) -> EvaluationStage[str]:
        """Ends a file with native code, which the cpu target cannot run."""
        return EvaluationStage(
            "build",
            lambda state: check_target(state.program.text, CPU.name, str(state.checks.get("not_converted", ""))),
            lambda state, _: replace(state, checks={**state.checks, "modelnew": "torch"}),
        )

    def _bounds_stage(self, name: str, gpu: GpuTask) -> EvaluationStage[Verdict | None]:
        """The fast gate on the file as a program, whose buffers lie between red zones.

        A buffer that host code allocates has none. Ends a file whose kernels write outside; other failures do not count
        against it.
        """

        def work(state: EvaluationState) -> Verdict | None:
            if state.converted is None:
                return None
            parsed = parse(state.converted.text)
            built = gpu.gpu.build(parsed.hip, parsed.defines(state.converted.knobs))
            return gpu.verify(parsed, state.converted, built, self.oracle, gate="fast") if built.ok else None

        def keep(state: EvaluationState, verdict: Verdict | None) -> EvaluationState:
            if verdict is None or verdict.status != "out_of_bounds":
                return state
            message = f"converted to a program: {verdict.message}" if verdict.message else ""
            checks = {**verdict.checks, **state.checks, "modelnew": "converted"}
            return state.ended(structs.replace(verdict, message=message, checks=checks), name)

        return EvaluationStage("verify", work, keep)

    def _prepare_stage(self, name: str, gpu: GpuTask) -> EvaluationStage[PreparedModelNew]:
        """Builds the file's extensions for a GPU."""

        def work(state: EvaluationState) -> PreparedModelNew:
            # started only where the file has to run to say what it builds
            with Zygote(MODELNEW_PRELOAD, unsafe=self.context.unsafe, name="ModelNew discovery") as zygote:
                return prepare(
                    state.program.text,
                    target=name,
                    arch=gpu.gpu.architecture,
                    cache=self.context.cache,
                    zygote=zygote,
                    init_inputs=self.context.handle.init_inputs(SEED),
                    unsafe=self.context.unsafe,
                )

        def keep(state: EvaluationState, prepared: PreparedModelNew) -> EvaluationState:
            return replace(state, prepared=prepared, checks={**state.checks, **prepared.checks})

        return EvaluationStage("build", work, keep)

    def _verify_stage(
        self, name: str, worker: CandidateWorker, load_options: Mapping[str, Any], gpu: GpuTask | None = None
    ) -> EvaluationStage[Verdict]:
        """Verifies the file in its own worker."""

        def work(state: EvaluationState) -> Verdict:
            reference = gpu.reference if gpu is not None and self.gate == "full" else None
            how: dict[str, Any] = {"gate": self.gate, "load_options": load_options}
            how["asked"] = None if gpu is None else lambda: gpu.judging
            return verify_gpu(None, state.program, None, self.oracle, reference, worker, **how)

        return EvaluationStage("verify", work, keep_verdict(name))

    def _operators_stage(
        self, worker: CandidateWorker, load_options: Mapping[str, Any]
    ) -> EvaluationStage[dict[str, Any]]:
        """Traces the library's operators in one call, at the shapes of `_traced`."""

        def work(state: EvaluationState) -> dict[str, Any]:
            case = self.oracle.case(_traced(self.oracle), "given")
            with worker.load(state.program, None, self.oracle.state, load_options=load_options) as loaded:
                return checked_trace({"ops": loaded.operators(case), "calls": [], "launches": []})

        return EvaluationStage("trace", work, lambda state, trace: replace(state, trace=trace))

    def _time_stage(
        self, name: str, worker: CandidateWorker, load_options: Mapping[str, Any]
    ) -> EvaluationStage[TimingResult]:
        """Times the file in its own worker, against every baseline of the gate."""
        gpu = self.context.gpus[name]

        def work(state: EvaluationState) -> TimingResult:
            known = state.found.verified_at(name, gpu.workload)
            return gpu.time(
                state.program,
                None,
                gate=self.gate,
                again=False,
                known=known,
                worker=worker,
                load_options=load_options,
            )

        return time_stage(self.context, name, work)

    def _assess_stage(self) -> EvaluationStage[Assessment]:
        """Computes coverage from the library's operators alone: launches from host code are not observed."""

        def work(state: EvaluationState) -> Assessment:
            ops = state.trace.get("ops", [])
            reference = self.context.handle.outline(_traced(self.context.oracle)).ops
            shares = library_shares([{"name": op["op"], "ops": [op]} for op in ops], reference)
            return Assessment(coverage(ops, reference), shares)

        return EvaluationStage("assess", work, keep_assessment)


def vet_stage(context: EvaluationContext) -> EvaluationStage[VettedModelNew]:
    """Applies the static rules to a file and converts it to a program if possible. Ends one that breaks a rule."""

    def work(state: EvaluationState) -> VettedModelNew:
        warnings = vet(state.program.text)
        try:
            return VettedModelNew(warnings, from_modelnew(state.program.text, context.handle.task.source))
        except ProgramError as error:
            return VettedModelNew(warnings, None, error.message)

    def keep(state: EvaluationState, vetted: VettedModelNew) -> EvaluationState:
        reason = {"not_converted": vetted.reason} if vetted.reason else {}
        return replace(
            state, converted=vetted.converted, checks={"warnings": vetted.warnings, **reason, **LESS_TRUSTED}
        )

    return EvaluationStage("parse", work, keep)


def as_modelnew(evaluation: Evaluation, program: Program) -> Evaluation:
    """A converted program's evaluation under the key of the original file; every verdict says so."""
    checks = {"modelnew": "converted", "warnings": [], **LESS_TRUSTED}
    targets = {
        name: structs.replace(
            result, verdict=structs.replace(result.verdict, checks={**result.verdict.checks, **checks})
        )
        if result.verdict is not None
        else result
        for name, result in evaluation.targets.items()
    }
    return structs.replace(evaluation, program=program.key, targets=targets)


def _traced(oracle: Oracle) -> str:
    """The workload whose operators are counted: the task's own where the oracle holds it, else a small one."""
    planned = oracle.planned()
    return next((p.workload.name for p in planned if p.role == "full"), planned[0].workload.name)
