"""One task on one GPU: the engine's first answer verified and timed, then the best of a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from msgspec.structs import replace

import hipwright
from benchmarks.suite.records import Against, Measured, Stage, Trial
from benchmarks.suite.tasks import SuiteTask
from hipwright.agents.engine_author import EngineAuthor
from hipwright.agents.pipeline import Pipeline
from hipwright.api.bench.search import SearchSetup, search_task
from hipwright.api.task_engine import task_engine
from hipwright.archive import Archive, RunLog, read_log
from hipwright.engine.tuned import TuningCache
from hipwright.evaluation import Evaluator
from hipwright.evaluation.gpu.task import GpuTask
from hipwright.evaluation.score import BatchScorer
from hipwright.machine import Workbench
from hipwright.program import parse
from hipwright.records import Estimate, Evaluation, Program, Timing, Verdict, content_key
from hipwright.search import SearchResult
from hipwright.verify import Oracle

ROUND = 12
"""Proposals of a search that are judged at a time."""
FINALISTS = 3
"""Of a search, timed in full."""


@dataclass(frozen=True)
class SuiteSettings:
    """How tasks are measured. evaluations: of a search, 0 for none; judges: programs judged at a time in it.

    workers: tasks side by side; timed: False measures only the time to the first verified program.
    """

    target: str = "cuda"
    evaluations: int = 0
    policy: str = "islands"
    seed: int = 0
    judges: int = 4
    workers: int = 1
    timed: bool = True


class FastGate:
    """An evaluator with the verdicts and timings of score mode, which a search can afford."""

    def __init__(self, evaluator: Evaluator, scorer: BatchScorer) -> None:
        self._scorer = scorer
        self.fingerprint = content_key("fast gate", evaluator.fingerprint)

    def evaluate(self, program: Program) -> Evaluation:
        """The evaluation by the fast gate."""
        return self._scorer.score([program])[0]

    def evaluate_many(self, programs: Sequence[Program]) -> list[Evaluation]:
        """The evaluations of a round, side by side."""
        return self._scorer.score(programs)


class OpenSuiteTask:
    """A task that is open on a GPU. begun: when its opening began (time.perf_counter)."""

    def __init__(self, task: SuiteTask, bench: Workbench, settings: SuiteSettings, begun: float) -> None:
        self.task, self.bench, self.settings = task, bench, settings
        self._begun = begun
        self.gpu: GpuTask = bench.evaluator.gpus[settings.target]
        self.gpu.extra_sides = ("max-autotune", "copy") if task.max_autotune else ("copy",)
        self.engine = task_engine(bench)

    def waited(self, seconds: float) -> None:
        """Takes the time spent waiting for other tasks out of the task's own."""
        self._begun += seconds

    # ---------------------------------------------------------------- the two stages

    def first(self, stage: Stage = "first") -> Measured:
        """The engine's own answer, with the seconds until it was verified; timed too unless it is only "opened"."""
        program = self.engine.default()
        judged = self.bench.evaluator.evaluate(program, timed=False)
        spent = time.perf_counter() - self._begun
        row = self._row(stage, program, judged, choices={}, first_s=round(spent, 3))
        done = self._timed(row, program) if judged.passed and stage == "first" else row
        return replace(done, seconds=round(time.perf_counter() - self._begun, 2))

    def searched(self, archive: Archive, cache: TuningCache, stop: Callable[[], bool]) -> Measured | None:
        """The best of a search, verified in full and timed as the first was; None where it was stopped."""
        settings, begun = self.settings, time.perf_counter()
        found = self._search(archive, stop)
        if found.interrupted:
            return None
        log = read_log(archive.events(found.run))
        trials = trials_of(log, settings.target)
        if found.program is None or found.evaluation is None:
            return self._bare("search", "unscorable", "candidate", "nothing that the search tried passed", trials)
        number, row = max(self._finals(archive, log, found, trials), key=lambda final: _merit(final[1]))
        if found.confirmed:
            scored = log.evaluated[number].evaluation
            self.engine.remember(cache, row.choices, scored, found.evaluations)
        return replace(row, seconds=round(time.perf_counter() - begun, 2))

    def _search(self, archive: Archive, stop: Callable[[], bool]) -> SearchResult:
        settings, targets = self.settings, (self.settings.target,)
        setup = SearchSetup(
            archive, targets, settings.evaluations, settings.seed, stop, settings.policy, {"round": ROUND}
        )
        author = EngineAuthor(self.engine.source, {}, targets)
        with BatchScorer(self.bench.evaluator, settings.target, workers=settings.judges) as scorer:
            gate = FastGate(self.bench.evaluator, scorer)
            return search_task(setup, self.bench, Pipeline(author, None, {}), evaluator=gate, confirm=self._confirm)

    def _finals(
        self, archive: Archive, log: RunLog, found: SearchResult, trials: tuple[Trial, ...]
    ) -> list[tuple[int, Measured]]:
        """The winner and those next to it by their lower bounds, timed as the first answer was: of sixty short timings
        the best looks better than it is."""
        others = [number for number in by_bound(log, self.settings.target) if number != found.number]
        rows = []
        for number in (found.number, *others[: FINALISTS - 1]):
            program = archive.program(log.proposed[number].program)
            judged = log.evaluated[number].evaluation
            if number != found.number and not self._confirm(program).passed:
                continue
            row = self._row("search", program, judged, log.proposed[number].choices, trials, found.evaluations)
            rows.append((number, self._timed(row, program)))
        return rows

    def _confirm(self, program: Program) -> Evaluation:
        fresh = Oracle(self.bench.handle, seed=None)
        return self.bench.evaluator.evaluate(program, fresh, timed=False)

    # ---------------------------------------------------------------- rows

    def _timed(self, row: Measured, program: Program) -> Measured:
        parsed = parse(program.text)
        build = self.gpu.gpu.build(parsed.hip, parsed.defines(program.knobs))
        result = self.gpu.time(program, build, gate="full", again=False)
        return with_timing(row, result.timing, result.verdict)

    def _row(
        self,
        stage: Stage,
        program: Program,
        judged: Evaluation,
        choices: Mapping[str, Any],
        trials: tuple[Trial, ...] = (),
        evaluations: int = 1,
        **more: Any,
    ) -> Measured:
        estimate = _estimate(judged, self.settings.target)
        return self._bare(
            stage,
            judged.status,
            judged.fault,
            judged.message[:500],
            trials,
            program=program.key,
            choices=dict(choices),
            coverage=judged.coverage if judged.passed else None,
            evaluations=evaluations,
            estimated_us=estimate.microseconds if estimate else None,
            detail=estimate.detail if estimate else (),
            **more,
        )

    def _bare(
        self, stage: Stage, status: str, fault: str | None, message: str, trials: tuple[Trial, ...] = (), **more: Any
    ) -> Measured:
        traffic, info = self.gpu.traffic, self.gpu.reference.info
        return Measured(
            task=self.task.name,
            family=self.task.family,
            key=self.task.key,
            stage=stage,
            status=status,
            fault=fault,
            message=message,
            device=str(info["name"]),
            architecture=self.gpu.gpu.architecture,
            torch=str(info["torch"]),
            version=hipwright.__version__,
            trials=trials,
            bytes=traffic.bytes if traffic else None,
            operations=traffic.operations if traffic else None,
            lanes=self.settings.workers,
            clock=time.time(),
            **more,
        )


def _merit(row: Measured) -> tuple[bool, float]:
    """What a search's finalists are ranked by: the time of those that hold."""
    return row.passed, -(row.median_ms or float("inf"))


def by_bound(log: RunLog, target: str) -> list[int]:
    """Proposals that passed, by the lower bound of their speedup over eager, the highest first."""
    bounds = {}
    for number, one in log.evaluated.items():
        result = one.evaluation.targets.get(target) if one.evaluation.passed else None
        eager = result.timing.versus.get("eager") if result is not None and result.timing is not None else None
        if eager is not None:
            bounds[number] = eager.interval[0]
    return sorted(bounds, key=lambda number: (-bounds[number], number))


def failed(task: SuiteTask, stage: Stage, status: str, fault: str | None, message: str) -> Measured:
    """The row of a task that ended in an error."""
    return Measured(
        task=task.name,
        family=task.family,
        key=task.key,
        stage=stage,
        status=status,
        fault=fault,
        message=message[:500],
        version=hipwright.__version__,
        clock=time.time(),
    )


def with_timing(row: Measured, timing: Timing | None, verdict: Verdict | None) -> Measured:
    """The row with its figures; a verdict of the clocks makes it a failure."""
    if verdict is not None or timing is None:
        said = verdict or Verdict(status="untrusted", fault="device", message="no time could be taken")
        return replace(row, status=said.status, fault=said.fault, message=said.message[:500], clock=time.time())
    return replace(
        row,
        policy=timing.policy,
        median_ms=timing.median_ms,
        latency_ms=timing.latency_ms,
        floor_ms=timing.floor_ms,
        own_time=timing.own_time,
        sides=sides_of(timing),
        missing=timing.notes,
        clock=time.time(),
    )


def sides_of(timing: Timing) -> dict[str, Against]:
    """What stood beside the program."""
    return {
        name: Against(
            speedup=one.speedup, interval=one.interval, ms=median(one.baseline_ms), latency_speedup=one.latency_speedup
        )
        for name, one in timing.versus.items()
    }


def trials_of(log: RunLog, target: str) -> tuple[Trial, ...]:
    """The evaluations of a search in the order in which they were proposed."""
    found = []
    for place, number in enumerate(sorted(log.evaluated), 1):
        judged = log.evaluated[number].evaluation
        timing = judged.targets[target].timing if judged.passed and target in judged.targets else None
        eager = timing.versus.get("eager") if timing else None
        estimate = _estimate(judged, target)
        found.append(
            Trial(
                number=place,
                choices=dict(log.proposed[number].choices),
                microseconds=1e3 * timing.median_ms if timing else None,
                speedup=eager.speedup if eager else None,
                interval=eager.interval if eager else None,
                estimated_us=estimate.microseconds if estimate else None,
                detail=estimate.detail if estimate else (),
            )
        )
    return tuple(found)


def _estimate(judged: Evaluation, target: str) -> Estimate | None:
    result = judged.targets.get(target)
    return result.estimate if result else None
