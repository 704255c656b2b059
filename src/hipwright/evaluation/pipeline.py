"""task x program x targets -> Evaluation.

Stages, cheap first: parse, builds for every target at once, verification on the CPU and on the GPUs, the trace that
coverage and the static estimate need, and timing. The first stage that rejects decides; what was not run says why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

import hipwright
from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluation.features import features
from hipwright.evaluation.modelnew import ModelNewEvaluator
from hipwright.evaluation.results import (
    NOT_ASKED,
    Findings,
    build_verdict,
    compiler,
    environment,
    library_shares,
    rejected,
)
from hipwright.measure.cost import coverage, tensor_bytes
from hipwright.measure.estimate import estimate
from hipwright.measure.fit import CostModel, load, refined
from hipwright.program import Parsed, parse
from hipwright.records import Build, Estimate, Evaluation, Program, content_key
from hipwright.sandbox import Limits, Zygote
from hipwright.targets import OFFLINE, TARGETS
from hipwright.task import Outline, TaskHandle
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify import WORKER, Oracle, checked_trace, verify_cpu
from hipwright.verify.static import Warning as LintWarning
from hipwright.verify.static import lint

if TYPE_CHECKING:
    from hipwright.evaluation.gpu_task import GpuTask

Gate = Literal["full", "fast"]


@dataclass
class Evaluator:
    """Evaluates programs of one task on the given targets. Safe to call from several threads.

    seed draws the verification inputs. Callers that confirm a winner pass a seed drawn after the program was fixed.
    gpus: the opened GPU of each target that has one ("cuda", "rocm").
    """

    handle: TaskHandle
    oracle: Oracle
    candidates: Zygote
    cache: BuildCache
    targets: tuple[str, ...]
    unsafe: bool = False
    limits: Limits = field(default_factory=Limits)
    gpus: Mapping[str, GpuTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.targets:
            if name not in OFFLINE and name != "cpu" and name not in self.gpus:
                known = ", ".join([*OFFLINE, "cpu", *self.gpus])
                raise BadInput(f"unknown target {name!r}", hint=f"this evaluator knows {known}")
        self._outlined: Outline | None = None
        machines = {*self.amd, *(gpu.gpu.architecture for gpu in self.gpus.values())}
        self._models: dict[str, CostModel] = {
            known: model for known in machines if (model := load(known, self.cache.folder)) is not None
        }

    @property
    def fingerprint(self) -> str:
        """What an Evaluation depends on besides task and program."""
        parts = [gpu.fingerprint for gpu in self.gpus.values()]
        parts += [self._models[name].key for name in sorted(self._models)]
        return content_key(
            hipwright.__version__, ",".join(self.targets), compiler(), str(self.oracle.seed), ",".join(parts)
        )

    @property
    def amd(self) -> tuple[str, ...]:
        """The AMD targets among `targets`."""
        return tuple(name for name in self.targets if name in OFFLINE)

    @property
    def waves(self) -> tuple[int, ...]:
        """The wave sizes that the CPU must prove: those of the AMD targets, widest first; 64 without any."""
        return tuple(sorted({OFFLINE[name].wave for name in self.amd} or {64}, reverse=True))

    def evaluate(
        self,
        program: Program,
        oracle: Oracle | None = None,
        *,
        thorough: bool = False,
        gate: Gate = "full",
        timed: bool = True,
    ) -> Evaluation:
        """Run every stage; a fault of the candidate or the machine comes back inside the Evaluation.

        oracle: other inputs than the evaluator's own. thorough: also say whether the other wave size would pass, and
        measure what was timed once more in fresh processes. gate: "fast" verifies less, for rewards (docs/score.md).
        """
        start = time.perf_counter()
        found = Findings(self.targets, self.waves[0])
        try:
            if program.form == "modelnew":
                result = ModelNewEvaluator(self).evaluate(program, oracle or self.oracle, found, gate, timed)
            else:
                result = self._evaluate(program, oracle or self.oracle, found, thorough, gate, timed)
        except HipwrightError as error:
            result = rejected(self.handle.task.key, program, error.verdict(), found)
        return replace(result, seconds=round(time.perf_counter() - start, 4))

    def lint(self, program: Program) -> list[LintWarning]:
        """Static warnings about the HIP source; never a verdict."""
        return lint(parse(program.text), self.amd)

    # ---------------------------------------------------------------- stages

    def _evaluate(
        self, program: Program, oracle: Oracle, found: Findings, thorough: bool, gate: Gate, timed: bool
    ) -> Evaluation:
        parsed = parse(program.text)
        defines = parsed.defines(program.knobs)
        self._build(parsed, defines, {*self.waves, 32, 64} if thorough else {*self.waves}, found)
        failed = next((b for b in found.builds() if not b.ok), None)
        if failed is not None:
            return rejected(self.handle.task.key, program, build_verdict(failed), found)
        for name, verify in self._verifiers(parsed, program, oracle, found, gate):
            verdict = verify()
            if not verdict.passed:
                return rejected(self.handle.task.key, program, verdict, found, where=name)
            found.verdicts[name] = verdict
        trace = self._trace(program, oracle)
        for name, gpu in self.gpus.items():
            if not timed:
                found.untimed[name] = NOT_ASKED
                continue
            known = found.judged_at(name, gpu.workload)
            result = gpu.time(program, found.gpu[name], gate=gate, outline=self.outline(), again=thorough, known=known)
            found.timed(name, result, gpu.workload)
            if result.verdict is not None:
                return rejected(self.handle.task.key, program, result.verdict, found, where=name)
        return self.finish(program, trace, found)

    def _verifiers(
        self, parsed: Parsed, program: Program, oracle: Oracle, found: Findings, gate: Gate
    ) -> list[tuple[str, Callable[[], Any]]]:
        """(target, verification) in order: the CPU sees races and bounds, so it comes first."""
        todo: list[tuple[str, Callable[[], Any]]] = []
        if "cpu" in self.targets:
            todo.append(
                (
                    "cpu",
                    lambda: verify_cpu(
                        parsed,
                        program,
                        found.cpu,
                        oracle,
                        self.candidates,
                        waves=self.waves,
                        limits=self.limits,
                        cache=self.cache,
                        gate=gate,
                    ),
                )
            )
        for name, gpu in self.gpus.items():
            todo.append((name, lambda n=name, g=gpu: g.verify(parsed, program, found.gpu[n], oracle, gate=gate)))  # type: ignore[misc]
        return todo

    def _build(self, parsed: Parsed, defines: Mapping[str, int], waves: Set[int], found: Findings) -> None:
        """All compilations at once; a wave nobody asked for is only built checked."""
        with ThreadPoolExecutor(max_workers=2 + len(self.gpus)) as pool:
            gpu = {name: pool.submit(one.build, parsed, defines) for name, one in self.gpus.items()}
            amd = {
                name: pool.submit(amdgpu.build, parsed.hip, name, defines, cache=self.cache, unsafe=self.unsafe)
                for name in self.amd
            }
            host = {}
            if "cpu" in self.targets:
                kinds = [(wave, checked) for wave in sorted(waves) for checked in (True, False)]
                kinds = [kind for kind in kinds if kind[0] in self.waves or kind[1]]
                host = {
                    (wave, checked): pool.submit(
                        cpu.build, parsed.hip, defines, wave=wave, checked=checked, cache=self.cache, unsafe=self.unsafe
                    )
                    for wave, checked in kinds
                }
            found.gpu = {n: f.result() for n, f in gpu.items()}
            found.amd = {n: f.result() for n, f in amd.items()}
            found.cpu = {k: f.result() for k, f in host.items()}

    def finish(self, program: Program, trace: Mapping[str, Any], found: Findings) -> Evaluation:
        """The evaluation of a program that passed every stage. trace: as `program.trace` gives it."""
        reference = self.outline().ops
        share = coverage(trace["ops"], reference)
        if any(verdict.checks.get("noop_right") for verdict in found.verdicts.values()):
            share = 0.0
        for name, verdict in found.verdicts.items():
            found.verdicts[name] = replace(verdict, checks={**verdict.checks, "traced_shapes": self._traced_shapes()})
        on_cpu = found.verdicts.get("cpu")
        traffic = (on_cpu.checks.get("traffic") if on_cpu else None) or {}
        floor = self._floor_bytes()
        built = {name: (OFFLINE.get(name), build) for name, build in found.amd.items()}
        for name, gpu in self.gpus.items():  # of the GPU at hand too, beside what was measured
            if name in found.gpu and found.gpu[name].kernels:
                built[name] = TARGETS.architecture(gpu.gpu.architecture), found.gpu[name]
        for name, (target, build) in built.items():
            if target is not None:
                told = estimate(target, build, trace["launches"], trace["ops"], floor, traffic)
                found.estimates[name] = self._refined(target.name, told)
        builds = [*found.amd.values(), *found.gpu.values()]
        own = next((t.own_time for t in found.timings.values() if t.own_time is not None), None)
        return Evaluation(
            task=self.handle.task.key,
            program=program.key,
            status="pass",
            targets=found.results(),
            coverage=round(share, 4),
            library=library_shares(trace["calls"], reference),
            own_time=own,
            **found.score(),
            features=features(builds, trace["launches"], found.estimates.values()),
            environment=environment(),
        )

    def reference_estimates(self) -> dict[str, Estimate]:
        """By AMD target, the reference itself by the static estimate: each of its operators one library call."""
        ops, floor = self.outline().ops, self._floor_bytes()
        found = {}
        for name in self.amd:
            nothing = Build(target=name, ok=True)
            found[name] = self._refined(name, estimate(OFFLINE[name], nothing, [], ops, floor))
        return found

    def _refined(self, machine: str, told: Estimate) -> Estimate:
        model = self._models.get(machine)
        return refined(told, model) if model else told

    def outline(self) -> Outline:
        """What the reference does at the task's own shapes, without data."""
        if self._outlined is None:
            self._outlined = self.handle.outline(self.handle.task.workloads[0].name)
        return self._outlined

    def _trace(self, program: Program, oracle: Oracle) -> dict[str, Any]:
        """Library calls and launches at the shapes of the reference's own trace, on tensors without data."""
        outline = self.outline()
        for gpu in self.gpus.values():  # its worker is warm
            return gpu.trace(program, oracle, outline)
        init = {"text": program.text, "knobs": program.knobs, "mode": "trace"}
        with self.candidates.session(WORKER, init, outline.state, limits=self.limits) as session:
            header, _ = session.call("trace", {"meta": True}, outline.inputs, timeout_s=self.limits.wall_s)
        return checked_trace(header)

    def _traced_shapes(self) -> dict[str, list[str]]:
        """{workload: input shapes} that coverage and the estimate are for."""
        workload = self.outline().workload
        return {workload.name: [f"{spec.dtype}{list(spec.shape)}" for spec in workload.specs]}

    def _floor_bytes(self) -> float:
        """Bytes the task itself must move at the traced shapes: inputs, parameters and outputs once each."""
        return float(sum(tensor_bytes(spec.to_dict()) for spec in self.outline().specs()))
