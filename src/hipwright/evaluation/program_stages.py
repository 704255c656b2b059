"""The stages of a candidate in the form `program`: HIP source and a launch plan (see `stages` for the runner)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hipwright.evaluation.context import EvaluationContext
from hipwright.evaluation.features import features
from hipwright.evaluation.missing import DOUBTFUL, NOT_ASKED
from hipwright.evaluation.results import Assessment, Builds, Findings, PendingBuilds, build_verdict, library_shares
from hipwright.evaluation.stages import EvaluationStage, EvaluationState, advance
from hipwright.measure.cost import coverage
from hipwright.measure.estimate import estimate
from hipwright.measure.paired_timing import TimingResult
from hipwright.program import Parsed, parse
from hipwright.records import Estimate, Program, Verdict
from hipwright.targets import CPU, OFFLINE, TARGETS
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.toolchain.cpu.sides import sides_to_build
from hipwright.toolchain.sim import build as simulated
from hipwright.toolchain.sim import runtime
from hipwright.verify import WORKER, Oracle, checked_trace, verify_cpu
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.verification import UNCLAIMED, Gate

if TYPE_CHECKING:
    from hipwright.evaluation.gpu.context import GpuContext


def _parse(state: EvaluationState) -> Parsed:
    return parse(state.program.text)


PARSE: EvaluationStage[Parsed] = EvaluationStage("parse", _parse, lambda state, parsed: replace(state, parsed=parsed))
"""Parses the program. Ends one that does not parse or check."""


# ---------------------------------------------------------------- build


@dataclass(frozen=True)
class BuildPlan:
    """What a program is compiled for. gpus: by target; amd: offline targets; sim: simulated ones; cpu: (wave size,
    checked) each; sides: whether the cpu target also compiles the sides of device headers that a program can tell.
    """

    cache: BuildCache
    unsafe: bool = False
    gpus: Mapping[str, GpuContext] = field(default_factory=dict)
    amd: tuple[str, ...] = ()
    sim: tuple[str, ...] = ()
    cpu: tuple[tuple[int, bool], ...] = ()
    sides: bool = False

    def build(self, parsed: Parsed, knobs: Mapping[str, int]) -> Builds:
        """Compiles for every target at once; a single one in the caller's thread."""
        hip, defines = parsed.hip, parsed.defines(knobs)
        gpu = {name: partial(gpu.build, hip, dict(defines)) for name, gpu in self.gpus.items()}
        where: dict[str, Any] = {"cache": self.cache, "unsafe": self.unsafe}
        amd = {name: partial(amdgpu.build, hip, name, defines, **where) for name in self.amd}
        sim = {name: partial(simulated.build, hip, name, defines, **where) for name in self.sim}
        judged, others = sides_to_build(hip, self.cpu, every=self.sides)
        host = {
            (wave, checked): partial(cpu.build, hip, defines, wave=wave, side=side, checked=checked, **where)
            for (wave, checked), side in judged.items()
        }
        sides = {
            one: partial(cpu.build, hip, defines, wave=one.wave, side=one.side, checked=True, **where) for one in others
        }
        if len(gpu) == 1 and not (amd or host or sim):
            return Builds(gpu={name: job() for name, job in gpu.items()})
        pool = ThreadPoolExecutor(max_workers=2 + len(self.gpus))
        try:
            on_gpu = {name: pool.submit(job) for name, job in gpu.items()}
            # the build without checks comes last: it finds the front end's work of the checked one
            on_host = {kind: pool.submit(job) for kind, job in host.items() if kind[1]}
            on_sides = {one: pool.submit(job) for one, job in sides.items()}
            on_sim = {name: pool.submit(job) for name, job in sim.items()}
            on_host |= {kind: pool.submit(job) for kind, job in host.items() if not kind[1]}
            on_amd = PendingBuilds({name: pool.submit(job) for name, job in amd.items()})
            return Builds(
                cpu={kind: future.result() for kind, future in on_host.items()},
                sim={name: future.result() for name, future in on_sim.items()},
                gpu={name: future.result() for name, future in on_gpu.items()},
                sides={one: future.result() for one, future in on_sides.items()},
                amd=on_amd,
            )
        finally:
            pool.shutdown(wait=False)


def build_plan(context: EvaluationContext, *, every_wave: bool = False, sides: bool = True) -> BuildPlan:
    """The builds that an evaluation on the context's targets needs.

    every_wave: the cpu target's checked build for each wave size, including those that no target uses. sides: also
    those of the sides of device headers that the program can tell apart, where the cpu target is one of the targets.
    """
    kinds: list[tuple[int, bool]] = []
    if CPU.name in context.targets:
        waves = sorted({*context.waves, 32, 64} if every_wave else {*context.waves})
        kinds = [(wave, checked) for wave in waves for checked in (True, False) if checked or wave in context.waves]
    gpus = {name: task.gpu for name, task in context.gpus.items()}
    where = (context.cache, context.unsafe, gpus, context.amd, context.simulated)
    return BuildPlan(*where, tuple(kinds), sides and bool(kinds))


def build_stage(plan: BuildPlan) -> EvaluationStage[Builds]:
    """Compiles a parsed program by a plan. Ends one with a failed build.

    Where the cpu target verifies next, builds for other machines go on meanwhile, and its stage ends one that fails.
    """

    def work(state: EvaluationState) -> Builds:
        return plan.build(_parsed(state), state.program.knobs)

    def keep(state: EvaluationState, builds: Builds) -> EvaluationState:
        state = replace(state, found=replace(state.found, builds=builds))
        return state if builds.cpu and builds.runnable else _without_failed(state)

    return EvaluationStage("build", work, keep)


def _without_failed(state: EvaluationState) -> EvaluationState:
    """The state, ended by the first of its builds that failed. Waits for those that still run."""
    builds = replace(state.found.builds, amd=dict(state.found.builds.amd))
    state = replace(state, found=replace(state.found, builds=builds))
    return state if builds.first_failed is None else state.ended(build_verdict(builds.first_failed))


def compile_ahead(program: Program, gpus: Mapping[str, GpuContext]) -> None:
    """Compiles a program for these GPUs, by target, so that its evaluation finds the builds in the cache.

    Errors are ignored: they occur again in the evaluation and are reported there.
    """
    if program.form == "program" and gpus:
        plan = BuildPlan(next(iter(gpus.values())).cache, gpus=gpus)
        advance(EvaluationState(program, Findings(tuple(gpus))), PARSE, build_stage(plan))


# ---------------------------------------------------------------- verify


def verify_cpu_stage(context: EvaluationContext, oracle: Oracle, gate: Gate) -> EvaluationStage[Verdict]:
    """Verifies a built program on the cpu target, which detects races and out-of-bounds accesses."""

    def work(state: EvaluationState) -> Verdict:
        return verify_cpu(
            _parsed(state),
            state.program,
            state.found.builds.cpu,
            oracle,
            context.candidates,
            waves=context.waves,
            limits=context.limits,
            cache=context.cache,
            gate=gate,
            sides=state.found.builds.sides,
        )

    def keep(state: EvaluationState, verdict: Verdict) -> EvaluationState:
        state = _without_failed(state)
        return state if state.end is not None else keep_verdict(CPU.name)(state, verdict)

    return EvaluationStage("verify", work, keep)


def verify_simulated_stage(
    context: EvaluationContext, target: str, oracle: Oracle, gate: Gate
) -> EvaluationStage[Verdict]:
    """Verifies a built program on a simulated target, by the stages of the cpu target."""
    wave = TARGETS[target].architecture.wave

    def work(state: EvaluationState) -> Verdict:
        build = state.found.builds.sim[target]
        return verify_cpu(
            _parsed(state),
            state.program,
            {(wave, checked): build for checked in (True, False)},
            oracle,
            context.candidates,
            waves=(wave,),
            limits=context.limits,
            cache=context.cache,
            gate=gate,
            executor=runtime.library(context.cache, unsafe=context.unsafe),
        )

    return EvaluationStage("verify", work, keep_verdict(target))


def verify_gpu_stage(
    context: EvaluationContext,
    target: str,
    oracle: Oracle,
    gate: Gate,
    worker: CandidateWorker | None = None,
    timer: CandidateWorker | None = None,
) -> EvaluationStage[Verdict]:
    """Verifies a built program on a GPU.

    worker: another process than the task's own. timer: holds the timed inputs, at which a program is verified that
    supports no smaller shape; without one, such a program is unscorable by the fast gate.
    """
    gpu = context.gpus[target]

    def work(state: EvaluationState) -> Verdict:
        parsed, build = _parsed(state), state.found.builds.gpu[target]
        verdict = gpu.verify(parsed, state.program, build, oracle, gate=gate, worker=worker)
        if verdict.evidence.get(UNCLAIMED) and timer is not None:
            verdict = gpu.verify_own(parsed, state.program, build, oracle, timer)
        return verdict

    return EvaluationStage("verify", work, keep_verdict(target))


def keep_verdict(target: str) -> Callable[[EvaluationState, Verdict], EvaluationState]:
    """Stores a target's verdict, with the candidate's checks. Ends one that did not pass."""

    def keep(state: EvaluationState, verdict: Verdict) -> EvaluationState:
        if state.checks:
            verdict = structs.replace(verdict, checks={**verdict.checks, **state.checks})
        if not verdict.passed:
            return state.ended(verdict, target)
        return replace(state, found=state.found.with_verdict(verdict, target))

    return keep


# ---------------------------------------------------------------- trace and assess


def trace_stage(
    context: EvaluationContext, oracle: Oracle, worker: CandidateWorker | None = None
) -> EvaluationStage[dict[str, Any]]:
    """Traces library calls and launches at the shapes of the reference's own trace, on meta tensors.

    worker: another process of the GPU than the task's own.
    """

    def work(state: EvaluationState) -> dict[str, Any]:
        outline = context.outline()
        for gpu in context.gpus.values():  # its worker runs already
            return gpu.trace(state.program, oracle, outline, worker)
        init = {"text": state.program.text, "knobs": state.program.knobs, "mode": "trace"}
        with context.candidates.session(WORKER, init, outline.state, limits=context.limits) as session:
            header, _ = session.call("trace", {"meta": True}, outline.inputs, timeout_s=context.limits.wall_s)
        return checked_trace(header)

    return EvaluationStage("trace", work, lambda state, trace: replace(state, trace=trace))


def assess_stage(context: EvaluationContext) -> EvaluationStage[Assessment]:
    """Computes coverage, static estimates and features of a program that was verified, traced and timed."""

    def work(state: EvaluationState) -> Assessment:
        trace, found, reference = state.trace, state.found, context.outline().ops
        share = coverage(trace["ops"], reference)
        if any(verdict.checks.get("noop_right") for verdict in found.verdicts.values()):
            share = 0.0
        estimates = _estimates(context, trace, found)
        builds = [*found.builds.amd.values(), *found.builds.gpu.values()]
        return Assessment(
            coverage=share,
            library=library_shares(trace["calls"], reference),
            features=features(builds, trace["launches"], estimates.values()),
            estimates=estimates,
            checks={"traced_shapes": context.traced_shapes(), "memory": context.memory_of(trace)},
        )

    return EvaluationStage("assess", work, keep_assessment)


def keep_assessment(state: EvaluationState, assessment: Assessment) -> EvaluationState:
    """Stores an assessment."""
    return replace(state, assessment=assessment, found=state.found.assessed(assessment))


def _estimates(context: EvaluationContext, trace: Mapping[str, Any], found: Findings) -> dict[str, Estimate]:
    """By AMD target; and for each GPU of this machine, to be compared with its timing."""
    on_cpu = found.verdicts.get(CPU.name)
    traffic = (on_cpu.checks.get("traffic") if on_cpu else None) or {}
    floor = context.floor_bytes()
    built = {name: (OFFLINE.get(name), build) for name, build in found.builds.amd.items()}
    for name, task in context.gpus.items():
        build = found.builds.gpu.get(name)
        if build is not None and build.kernels:
            built[name] = TARGETS.architecture(task.gpu.architecture), build
    return {
        name: context.refined(target.name, estimate(target, build, trace["launches"], trace["ops"], floor, traffic))
        for name, (target, build) in built.items()
        if target is not None
    }


# ---------------------------------------------------------------- time


def time_stage(
    context: EvaluationContext, target: str, time_it: Callable[[EvaluationState], TimingResult]
) -> EvaluationStage[TimingResult]:
    """Times a verified candidate on a GPU. Ends one whose timing was rejected."""

    def keep(state: EvaluationState, result: TimingResult) -> EvaluationState:
        state = replace(state, found=state.found.with_timing(target, result, context.gpus[target].workload))
        return state.ended(result.verdict, target) if result.verdict is not None else state

    return EvaluationStage("time", time_it, keep)


def full_timing(
    context: EvaluationContext, target: str, gate: Gate, *, again: bool = False
) -> EvaluationStage[TimingResult]:
    """Times a program against every baseline of its gate, in the task's own worker; where the machine's clocks
    disagree, the full gate passes it without a timing. again: once more in fresh processes."""
    gpu = context.gpus[target]

    def work(state: EvaluationState) -> TimingResult:
        known = state.found.verified_at(target, gpu.workload)
        build = state.found.builds.gpu[target]
        return gpu.time(state.program, build, gate=gate, again=again, known=known)

    stage = time_stage(context, target, work)

    def keep(state: EvaluationState, result: TimingResult) -> EvaluationState:
        if gate == "fast" or not result.doubted:
            return stage.keep(state, result)
        why = f"{DOUBTFUL}: {result.verdict.message if result.verdict else ''}"
        return replace(state, found=state.found.without_timing(target, why))

    return replace(stage, keep=keep)


def untimed(state: EvaluationState, target: str) -> EvaluationState:
    """The state where no timing on a target was requested; unchanged where the candidate has ended."""
    if state.end is not None:
        return state
    return replace(state, found=state.found.without_timing(target, NOT_ASKED))


def _parsed(state: EvaluationState) -> Parsed:
    assert state.parsed is not None
    return state.parsed
