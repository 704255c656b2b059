"""The results of an evaluation's stages, and the Evaluation made of them: results by target, reasons for gaps."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Any

from msgspec import structs

import hipwright
from hipwright.evaluation.features import features
from hipwright.evaluation.missing import NOT_RUN, NOT_TIMED_CPU, NOT_TIMED_SIM, why_missing
from hipwright.measure.cost import OpCall, total_seconds
from hipwright.measure.paired_timing import TimingResult
from hipwright.records import Build, Estimate, Evaluation, Program, TargetResult, Timing, Verdict
from hipwright.targets import TARGETS
from hipwright.toolchain import clang
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cpu.sides import TargetSide


class PendingBuilds(Mapping[str, Build]):
    """Builds by target that may still run; each is waited for when it is asked for."""

    def __init__(self, futures: Mapping[str, Future[Build]]) -> None:
        self._futures = futures

    def __getitem__(self, target: str) -> Build:
        return self._futures[target].result()

    def __iter__(self) -> Iterator[str]:
        return iter(self._futures)

    def __len__(self) -> int:
        return len(self._futures)

    def known(self) -> dict[str, Build]:
        """The builds that the machine could make. Waits for them."""
        return {name: future.result() for name, future in self._futures.items() if future.exception() is None}


@dataclass(frozen=True)
class Builds:
    """One program's builds. amd, sim, gpu: by target; cpu: by (wave size, whether every access is checked).

    sides: checked builds for the cpu target of the sides that the program can tell apart. amd may be `PendingBuilds`.
    """

    amd: Mapping[str, Build] = field(default_factory=dict)
    sim: Mapping[str, Build] = field(default_factory=dict)
    cpu: Mapping[tuple[int, bool], Build] = field(default_factory=dict)
    gpu: Mapping[str, Build] = field(default_factory=dict)
    sides: Mapping[TargetSide, Build] = field(default_factory=dict)

    @property
    def runnable(self) -> bool:
        """Whether the builds that run on this machine succeeded."""
        return all(build.ok for kind in (self.cpu, self.sim, self.gpu, self.sides) for build in kind.values())

    @property
    def first_failed(self) -> Build | None:
        """The first failed build, which rejects the program; None where all succeeded. Waits for pending ones."""
        kinds: tuple[Mapping[Any, Build], ...] = (self.amd, self.cpu, self.sim, self.gpu, self.sides)
        return next((build for kind in kinds for build in kind.values() if not build.ok), None)


@dataclass(frozen=True)
class Assessment:
    """A program's properties beside correctness. coverage, library: as in `Evaluation`; estimates: by target.

    checks: facts for the checks of each verdict.
    """

    coverage: float
    library: Mapping[str, float]
    features: Mapping[str, float] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    checks: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """The results of the stages so far, by target. wave: of the cpu build that is reported."""

    targets: tuple[str, ...]
    wave: int = 64
    builds: Builds = Builds()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    timings: Mapping[str, Timing] = field(default_factory=dict)
    untimed: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)

    def verified_at(self, target: str, workload: str) -> bool:
        """Whether the target's verdict includes that workload."""
        return target in self.verdicts and workload in self.verdicts[target].workloads

    def with_verdict(self, verdict: Verdict, *targets: str) -> Findings:
        """The findings with a verdict on these targets."""
        return replace(self, verdicts={**self.verdicts, **dict.fromkeys(targets, verdict)})

    def with_timing(self, target: str, result: TimingResult, workload: str) -> Findings:
        """The findings with a timing of a workload.

        A program was verified at the workload that is timed (`GpuTask.time`), so the target's verdict includes that
        workload.
        """
        timings = self.timings if result.timing is None else {**self.timings, target: result.timing}
        found = replace(self, timings=timings)
        if result.verdict is not None or self.verified_at(target, workload):
            return found
        verdict = self.verdicts[target]
        skipped = {name: why for name, why in verdict.skipped.items() if name != workload}
        rests_on = (*verdict.workloads, workload)
        return found.with_verdict(structs.replace(verdict, workloads=rests_on, skipped=skipped), target)

    def without_timing(self, target: str, why: str) -> Findings:
        """The findings with the reason why a target is not timed."""
        return replace(self, untimed={**self.untimed, target: why})

    def assessed(self, assessment: Assessment) -> Findings:
        """The findings with an assessment's estimates, and with its checks in every verdict."""
        verdicts = {
            name: structs.replace(verdict, checks={**verdict.checks, **assessment.checks})
            for name, verdict in self.verdicts.items()
        }
        return replace(self, verdicts=verdicts, estimates=assessment.estimates)

    def results(self, end: Verdict | None = None) -> dict[str, TargetResult]:
        """A result for each target. end: the verdict that ended the evaluation, None for a pass."""
        return {name: self._result(name, end) for name in self.targets}

    def _result(self, name: str, end: Verdict | None) -> TargetResult:
        early = end if end is not None and end.stage in ("parse", "lint") else None  # before any target was used
        verdict = self.verdicts.get(name, early)
        if TARGETS.is_host(name):
            why = {"timing": NOT_TIMED_CPU, "estimate": NOT_TIMED_CPU}
            return self._with_why(name, self.builds.cpu.get((self.wave, False)), verdict, why, end)
        if TARGETS.is_simulated(name):
            why = {"timing": NOT_TIMED_SIM, "estimate": NOT_TIMED_SIM}
            return self._with_why(name, self.builds.sim.get(name), verdict, why, end)
        if TARGETS.is_gpu(name):
            why = {"timing": self.untimed[name]} if name in self.untimed else {}
            return self._with_why(name, self.builds.gpu.get(name), verdict, why, end)
        built = self.builds.amd.get(name)
        if built is not None and not built.ok:
            verdict = build_verdict(built)
        why = {"timing": NOT_RUN, "verdict": NOT_RUN} if built is not None or end is None else {}
        return self._with_why(name, built, verdict, why, end)

    def _with_why(
        self, name: str, build: Build | None, verdict: Verdict | None, why: dict[str, str], end: Verdict | None
    ) -> TargetResult:
        estimate, timing = self.estimates.get(name), self.timings.get(name)
        parts = {"build": build, "verdict": verdict, "estimate": estimate, "timing": timing}
        missing = {part: why.get(part) or why_missing(part, end) for part, found in parts.items() if found is None}
        return TargetResult(
            target=name, build=build, verdict=verdict, estimate=estimate, timing=timing, why_none=missing
        )

    def score(self) -> dict[str, Any]:
        """score and score_kind: microseconds where a GPU or its simulation timed it, else the mean of estimates."""
        if self.timings:
            timing = next(iter(self.timings.values()))
            kind = "simulated" if timing.simulated else "measured"
            return {"score": round(1e3 * timing.median_ms, 4), "score_kind": kind}
        if offline := [one for name, one in self.estimates.items() if not TARGETS.runs(name)]:
            times = [log(e.microseconds) for e in offline]
            return {"score": round(exp(sum(times) / len(times)), 4), "score_kind": "estimate"}
        return {"score": None, "score_kind": "none"}


def passed(task: str, program: Program, found: Findings, assessment: Assessment) -> Evaluation:
    """The evaluation of a program that passed every stage. task: the task's key."""
    own = next((t.own_time for t in found.timings.values() if t.own_time is not None), None)
    return Evaluation(
        task=task,
        program=program.key,
        status="pass",
        targets=found.results(),
        coverage=round(assessment.coverage, 4),
        library=dict(assessment.library),
        own_time=own,
        **found.score(),
        features=dict(assessment.features),
        environment=environment(),
    )


def rejected(task: str, program: Program, verdict: Verdict, found: Findings, where: str = "") -> Evaluation:
    """The evaluation of a program that failed.

    task: the task's key; where: the target that rejected it, "" for every target that runs.
    """
    if isinstance(found.builds.amd, PendingBuilds):  # an error of the machine ended the evaluation meanwhile
        found = replace(found, builds=replace(found.builds, amd=found.builds.amd.known()))
    found = found.with_verdict(verdict, *([where] if where else [n for n in found.targets if TARGETS.runs(n)]))
    return Evaluation(
        task=task,
        program=program.key,
        status=verdict.status,
        fault=verdict.fault,
        message=verdict.message,
        targets=found.results(verdict),
        features=features(list(found.builds.amd.values()), [], []),
        environment=environment(),
    )


def build_verdict(build: Build) -> Verdict:
    """The verdict on a program that does not compile."""
    first = next((line for line in build.log.splitlines() if "error" in line or "refused" in line), build.log[:200])
    return Verdict(
        status="compile_error",
        fault="candidate",
        stage="build",
        message=f"{build.target}: {first.strip()}",
        evidence={"target": build.target, "log": build.log[:4000]},
    )


def library_shares(calls: Sequence[Mapping[str, Any]], reference: Sequence[OpCall]) -> dict[str, float]:
    """{operator the plan calls: its modelled cost / the reference's}, views and allocations left out."""
    whole = total_seconds(reference)
    shares: dict[str, float] = {}
    for call in calls:
        if (cost := total_seconds(call["ops"])) > 0.0 and whole > 0.0:
            shares[call["name"]] = shares.get(call["name"], 0.0) + cost / whole
    return {name: round(share, 4) for name, share in shares.items()}


def compiler() -> str:
    """One line: the compiler for AMD targets, or that there is none."""
    return amdgpu.compiler_id() if clang.present() else "none"


def environment() -> str:
    """One line: the hardware and software that the figures come from."""
    return (
        f"hipwright {hipwright.__version__}, clang {compiler()}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )
