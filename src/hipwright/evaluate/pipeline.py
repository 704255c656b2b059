"""task x program x targets -> Evaluation.

Stages, cheap first: parse, lint, builds for every AMD target and the CPU at once, verification on the CPU, then the
trace that coverage and the static estimate need. The first stage that rejects decides; what was not run says why.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import exp, log
from typing import Any

from msgspec.structs import replace

import hipwright
from hipwright.errors import BadInput, HipwrightError
from hipwright.evaluate.features import features
from hipwright.measure.cost import OpCall, coverage, tensor_bytes, total_seconds
from hipwright.measure.estimate import estimate
from hipwright.program import Parsed, parse
from hipwright.records import Build, Estimate, Evaluation, Program, TargetResult, Verdict, content_key
from hipwright.sandbox import Limits, Zygote
from hipwright.task import Outline, TaskHandle
from hipwright.toolchain import amdgpu, cpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.targets import TARGETS
from hipwright.verify import WORKER, Oracle, checked_trace, verify_cpu
from hipwright.verify.static import Warning as LintWarning
from hipwright.verify.static import lint

NOT_RUN = "no AMD GPU was used: this target was compiled, not run"
NOT_TIMED_CPU = "the cpu target proves numerics; its speed says nothing about a GPU"
NOT_PASSED = "the program was rejected before this stage"

CpuBuilds = dict[tuple[int, bool], Build]


@dataclass
class Evaluator:
    """Evaluates programs of one task on the given targets. Safe to call from several threads.

    seed draws the verification inputs. Callers that confirm a winner pass a seed drawn after the program was fixed.
    """

    handle: TaskHandle
    oracle: Oracle
    candidates: Zygote
    cache: BuildCache
    targets: tuple[str, ...]
    unsafe: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        unknown = [name for name in self.targets if name != "cpu" and name not in TARGETS]
        if unknown:
            known = ", ".join([*TARGETS, "cpu"])
            raise BadInput(f"unknown target {unknown[0]!r}", hint=f"this build knows {known}")
        self._outlined: Outline | None = None

    @property
    def fingerprint(self) -> str:
        """What an Evaluation depends on besides task and program."""
        return content_key(hipwright.__version__, ",".join(self.targets), amdgpu.compiler_id(), str(self.oracle.seed))

    @property
    def amd(self) -> tuple[str, ...]:
        """The AMD targets among `targets`."""
        return tuple(name for name in self.targets if name in TARGETS)

    @property
    def waves(self) -> tuple[int, ...]:
        """The wave sizes that the CPU must prove: those of the AMD targets, widest first; 64 without any."""
        return tuple(sorted({TARGETS[name].wave for name in self.amd} or {64}, reverse=True))

    def evaluate(self, program: Program, oracle: Oracle | None = None, *, thorough: bool = False) -> Evaluation:
        """Run every stage; a fault of the candidate or the machine comes back inside the Evaluation.

        oracle: other inputs than the evaluator's own. thorough: also say whether the other wave size would pass.
        """
        start = time.perf_counter()
        try:
            result = self._evaluate(program, oracle or self.oracle, thorough)
        except HipwrightError as error:
            result = self._rejected(program, error.verdict())
        return _with_seconds(result, time.perf_counter() - start)

    def lint(self, program: Program) -> list[LintWarning]:
        """Static warnings about the HIP source; never a verdict."""
        return lint(parse(program.text), self.amd)

    # ---------------------------------------------------------------- stages

    def _evaluate(self, program: Program, oracle: Oracle, thorough: bool) -> Evaluation:
        parsed = parse(program.text)
        defines = parsed.defines(program.knobs)
        amd, cpu_builds = self._build(parsed, defines, {*self.waves, 32, 64} if thorough else {*self.waves})
        failed = next((b for b in (*amd.values(), *cpu_builds.values()) if not b.ok), None)
        if failed is not None:
            return self._rejected(program, _build_verdict(failed), amd, cpu_builds)
        if "cpu" not in self.targets:
            return self._finish(program, parsed, defines, amd, cpu_builds, None)
        verdict = verify_cpu(
            parsed,
            program,
            cpu_builds,
            oracle,
            self.candidates,
            waves=self.waves,
            limits=self.limits,
            cache=self.cache,
        )
        if not verdict.passed:
            return self._rejected(program, verdict, amd, cpu_builds)
        return self._finish(program, parsed, defines, amd, cpu_builds, verdict)

    def _build(self, parsed: Parsed, defines: Mapping[str, int], waves: Set[int]) -> tuple[dict[str, Build], CpuBuilds]:
        """All compilations at once; two run at a time on two cores. A wave nobody asked for is only built checked."""
        with ThreadPoolExecutor(max_workers=2) as pool:
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
            return {n: f.result() for n, f in amd.items()}, {k: f.result() for k, f in host.items()}

    def _finish(
        self,
        program: Program,
        parsed: Parsed,
        defines: Mapping[str, int],
        amd: dict[str, Build],
        cpu_builds: CpuBuilds,
        verdict: Verdict | None,
    ) -> Evaluation:
        trace = self._trace(parsed, program)
        reference = self._outline().ops
        share = coverage(trace["ops"], reference)
        if verdict is not None:
            share = 0.0 if verdict.checks.get("noop_right") else share
            verdict = replace(verdict, checks={**verdict.checks, "traced_shapes": self._traced_shapes()})
        traffic = (verdict.checks.get("traffic") if verdict else None) or {}
        floor = self._floor_bytes()
        estimates = {
            name: estimate(TARGETS[name], build, trace["launches"], trace["ops"], floor, traffic)
            for name, build in amd.items()
        }
        score = exp(sum(log(e.microseconds) for e in estimates.values()) / len(estimates)) if estimates else None
        return Evaluation(
            task=self.handle.task.key,
            program=program.key,
            status="pass",
            targets=self._targets(amd, cpu_builds, verdict, estimates),
            coverage=round(share, 4),
            library=library_shares(trace["calls"], reference),
            score=round(score, 4) if score is not None else None,
            score_kind="estimate" if score is not None else "none",
            features=features(list(amd.values()), trace["launches"], estimates.values()),
            environment=environment(),
        )

    def _outline(self) -> Outline:
        """What the reference does at the task's own shapes, without data."""
        if self._outlined is None:
            self._outlined = self.handle.outline(self.handle.task.workloads[0].name)
        return self._outlined

    def _trace(self, parsed: Parsed, program: Program) -> dict[str, Any]:
        """Library calls and launches at the shapes of the reference's own trace, on tensors without data."""
        outline = self._outline()
        init = {"text": program.text, "knobs": program.knobs, "mode": "trace"}
        with self.candidates.session(WORKER, init, outline.state, limits=self.limits) as session:
            header, _ = session.call("trace", {"meta": True}, outline.inputs, timeout_s=self.limits.wall_s)
        return checked_trace(header)

    def _traced_shapes(self) -> dict[str, list[str]]:
        """{workload: input shapes} that coverage and the estimate are for."""
        workload = self._outline().workload
        return {workload.name: [f"{spec.dtype}{list(spec.shape)}" for spec in workload.specs]}

    def _floor_bytes(self) -> float:
        """Bytes the task itself must move at the traced shapes: inputs, parameters and outputs once each."""
        return float(sum(tensor_bytes(spec.to_dict()) for spec in self._outline().specs()))

    # ---------------------------------------------------------------- records

    def _rejected(
        self, program: Program, verdict: Verdict, amd: dict[str, Build] | None = None, host: CpuBuilds | None = None
    ) -> Evaluation:
        return Evaluation(
            task=self.handle.task.key,
            program=program.key,
            status=verdict.status,
            fault=verdict.fault,
            message=verdict.message,
            targets=self._targets(amd or {}, host or {}, verdict, {}),
            features=features(list((amd or {}).values()), [], []),
            environment=environment(),
        )

    def _targets(
        self, amd: dict[str, Build], host: CpuBuilds, verdict: Verdict | None, estimates: Mapping[str, Estimate]
    ) -> dict[str, TargetResult]:
        results = {}
        for name in self.targets:
            if name == "cpu":
                build = host.get((self.waves[0], False))
                why = {"timing": NOT_TIMED_CPU, "estimate": NOT_TIMED_CPU}
                results[name] = TargetResult(target=name, build=build, verdict=verdict, why_none=why)
                continue
            mine = verdict if verdict and verdict.stage in ("parse", "lint") else None
            if (built := amd.get(name)) is not None and not built.ok:
                mine = _build_verdict(built)
            why = {"timing": NOT_RUN, **({} if mine else {"verdict": NOT_RUN})}
            if name not in estimates:
                why["estimate"] = NOT_PASSED
            if built is None:
                why["build"] = NOT_PASSED
            results[name] = TargetResult(
                target=name, build=built, verdict=mine, estimate=estimates.get(name), why_none=why
            )
        return results


def library_shares(calls: Sequence[Mapping[str, Any]], reference: Sequence[OpCall]) -> dict[str, float]:
    """{operator the plan calls: its modelled cost / the reference's}, views and allocations left out."""
    whole = total_seconds(reference)
    shares: dict[str, float] = {}
    for call in calls:
        if (cost := total_seconds(call["ops"])) > 0.0 and whole > 0.0:
            shares[call["name"]] = shares.get(call["name"], 0.0) + cost / whole
    return {name: round(share, 4) for name, share in shares.items()}


def environment() -> str:
    """One line that names what the figures came from."""
    return (
        f"hipwright {hipwright.__version__}, clang {amdgpu.compiler_id()}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )


def _build_verdict(build: Build) -> Verdict:
    first = next((line for line in build.log.splitlines() if "error" in line or "refused" in line), build.log[:200])
    return Verdict(
        status="compile_error",
        fault="candidate",
        stage="build",
        message=f"{build.target}: {first.strip()}",
        evidence={"target": build.target, "log": build.log[:4000]},
    )


def _with_seconds(evaluation: Evaluation, seconds: float) -> Evaluation:
    return replace(evaluation, seconds=round(seconds, 4))
