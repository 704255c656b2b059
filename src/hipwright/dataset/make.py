"""The pairs of one task: the engine's program, other schedules, steps of a search, and wrong programs with evidence.

The evaluator judges every program, and `correct` is its verdict. All random draws come from the task and the seed: a
task that is made again gives the same rows.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

import hipwright
from hipwright import search
from hipwright.archive import Archive
from hipwright.capture.graph import Graph
from hipwright.dataset.attempts import EngineAttempt, engine_attempts, library_attempt
from hipwright.dataset.describe import task_fields
from hipwright.dataset.judge import OpenTask, PairJudge
from hipwright.dataset.records import STEP_GAIN, Kind, Pair, build_summaries, estimates_us, measured_timing
from hipwright.dataset.store import TaskOutcome
from hipwright.dataset.tasks import DatasetTask
from hipwright.engine import space, write
from hipwright.errors import HipwrightError, InfrastructureError, WorkerError
from hipwright.evaluation.results import compiler
from hipwright.events import Listener, silent
from hipwright.records import Evaluation, Program, Record, content_key
from hipwright.search import fitness
from hipwright.search.operators import Choices, mutate, sample

MIN_SCHEDULES = 4  # tried at least when no attempt of the engine passes
DRAWS_PER_SCHEDULE = 6  # at most: in a small space many draws give the same program
MUTANTS_PER_NEGATIVE = 12  # tried at most for each requested negative
MAX_ATTEMPTS = 6  # attempts of the engine (attempts.py), without other schedules
SCHEDULES = "the engine's schedules"


class TaskMachine(Protocol):
    """Opens tasks for evaluation (hipwright.machine.Machine)."""

    def open(self, task: Path, *, seed: int | None, listener: Listener) -> AbstractContextManager[OpenTask]:
        """Open a task file."""
        ...


class BuildSettings(Record, frozen=True, kw_only=True):
    """What decides the rows. variants, negatives: requested per task; budget: evaluations of a search per task."""

    targets: tuple[str, ...]
    variants: int = 3
    negatives: int = 1
    budget: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Hooks:
    """Functions of higher layers, defined at module level so that they can be pickled for workers.

    mutants: changed programs with a description of the change, in an order drawn from the number; evidence_text: the
    evidence of an evaluation as text; search_pairs: the pairs of a search run.
    """

    mutants: Callable[[Program, int], Iterable[tuple[Program, str]]]
    evidence_text: Callable[[Evaluation, Program], str]
    search_pairs: Callable[[Archive, str], Iterable[Pair]]


@dataclass(frozen=True)
class TaskPairs:
    """The outcome and the rows of one task."""

    outcome: TaskOutcome
    pairs: tuple[Pair, ...] = ()


def make_pairs(machine: TaskMachine, entry: DatasetTask, settings: BuildSettings, hooks: Hooks) -> TaskPairs:
    """The pairs of a task. A failed task has an outcome with the reason; infrastructure errors are raised."""
    begun = time.monotonic()
    seed = _derived_seed("inputs", settings, entry)
    try:
        with tempfile.TemporaryDirectory(prefix="hipwright-task-") as folder:
            path = Path(folder) / f"{entry.name}.py"
            path.write_text(entry.source, encoding="utf-8")
            with machine.open(path, seed=seed, listener=silent) as bench:
                judge = PairJudge(bench, _derived_seed("second inputs", settings, entry))
                result = _PairMaker(bench, judge, entry, settings, hooks).make()
    except InfrastructureError:
        raise
    except (HipwrightError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
        why = error.message if isinstance(error, HipwrightError) else f"{type(error).__name__}: {error}"
        result = TaskPairs(TaskOutcome(entry=entry.key, name=entry.name, status="failed", why=why[:500]))
    seconds = round(time.monotonic() - begun, 3)
    return TaskPairs(replace(result.outcome, seconds=seconds), result.pairs)


def _derived_seed(what: str, settings: BuildSettings, entry: DatasetTask) -> int:
    return int(content_key(f"dataset {what}", str(settings.seed), entry.key)[:12], 16)


@dataclass(frozen=True)
class _Tried:
    program: Program
    evaluation: Evaluation
    choices: Choices


@dataclass
class _PairMaker:
    """Makes the pairs of one open task."""

    bench: OpenTask
    judge: PairJudge
    entry: DatasetTask
    settings: BuildSettings
    hooks: Hooks
    pairs: dict[str, Pair] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    tried: list[_Tried] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # keys of the tried programs

    def make(self) -> TaskPairs:
        handle = self.bench.handle
        self.task = self.entry.synthetic.task if self.entry.synthetic else handle.task.key
        workload = handle.task.workloads[0]
        captured = handle.capture(workload.name)
        self.about = task_fields(self.entry, captured, workload.specs)
        graph = Graph.from_dict(captured)
        attempt = self._engine(graph)
        self._variants(attempt)
        if not self._passed():
            self._try_attempt(library_attempt(graph))
        if passed := self._passed():
            self._search(attempt.graph)
            self._step(passed)
            self._negatives(passed[0])
        return TaskPairs(self._outcome(passed), tuple(self.pairs.values()))

    def _passed(self) -> list[_Tried]:
        return [one for one in self.tried if one.evaluation.passed]

    def _outcome(self, passed: list[_Tried]) -> TaskOutcome:
        first = self.tried[0].evaluation
        return TaskOutcome(
            entry=self.entry.key,
            name=self.entry.name,
            task=self.task,
            status="verified" if passed else "unverified",
            why="" if passed else f"{first.status}: {first.message}"[:500],
            coverage=max((one.evaluation.coverage for one in passed), default=0.0),
            pairs=tuple(self.pairs),
            counts=dict(sorted(self.counts.items())),
            evaluations=self.judge.evaluations,
        )

    # ---------------------------------------------------------------- programs of the engine

    def _engine(self, graph: Graph) -> EngineAttempt:
        """Try the engine's attempts until one passes; returns it, or the first attempt when none passes."""
        attempts = list(engine_attempts(graph))
        for attempt in attempts:
            self._try_attempt(attempt)
            if self._passed():
                return attempt
        return attempts[0]

    def _try_attempt(self, attempt: EngineAttempt) -> None:
        choices = attempt.choices()
        self._try(write(attempt.graph, choices), choices, "engine", attempt.by)

    def _variants(self, attempt: EngineAttempt) -> None:
        """Try other schedules, alternately near the default and anywhere in the space.

        At least MIN_SCHEDULES are tried when no program has passed.
        """
        choice, rng = space(attempt.graph), random.Random(_derived_seed("variants", self.settings, self.entry))
        wanted = self.settings.variants if self._passed() else max(self.settings.variants, MIN_SCHEDULES)
        limit = len(self.seen) + wanted
        for draw in range(wanted * DRAWS_PER_SCHEDULE):
            if len(self.seen) >= limit:
                break
            drawn = mutate(choice, [], rng) if draw % 2 == 0 else sample(choice, [], rng)
            choices = {**drawn, **attempt.fixed}
            self._try(write(attempt.graph, choices), choices, "variant", SCHEDULES)

    def _try(self, program: Program, choices: Choices, kind: Kind, by: str) -> None:
        """Judge a program that was not tried yet, and keep its pair."""
        if program.key in self.seen:
            return
        self.seen.add(program.key)
        evaluation = self.judge.verdict(program)
        self.tried.append(_Tried(program, evaluation, choices))
        made = {"by": by, "choices": choices}
        if evaluation.passed:
            self.counts[kind] += 1
            self._add(program, evaluation, kind, made)
        elif self.judge.is_wrong(program, evaluation):
            self.counts["the engine's, and wrong"] += 1
            self._add(program, evaluation, "negative", made)
        else:
            self.counts[f"the engine's: {evaluation.status}"] += 1

    def _step(self, passed: list[_Tried]) -> None:
        """Add the step from the slowest schedule to the fastest, where it gains at least STEP_GAIN."""
        figures = [(found.value, one) for one in passed if (found := fitness.score(one.evaluation)) is not None]
        if not figures:
            return
        slow, fast = max(figures, key=lambda f: f[0])[1], min(figures, key=lambda f: f[0])[1]
        gain = fitness.gain(fast.evaluation, slow.evaluation)
        if gain >= STEP_GAIN and fitness.faster(fast.evaluation, slow.evaluation):
            made = {"by": SCHEDULES, "choices": fast.choices, "before": slow.choices}
            figure = {"gain": round(gain, 4), "gain_by": fast.evaluation.score_kind}
            self._add(fast.program, fast.evaluation, "step", {**made, **figure}, before=slow.program)
            self.counts["step"] += 1

    def _search(self, graph: Graph) -> None:
        """Add the pairs of a search of the engine's space, which runs in a temporary archive."""
        if not self.settings.budget:
            return
        task = self.bench.handle.task
        seed = _derived_seed("search", self.settings, self.entry) % (1 << 31)
        run = search.new_run(task, self.settings.targets, budget=self.settings.budget, seed=seed)
        run = replace(run, id=f"dataset-{self.entry.key}")
        source = search.EngineSource(space(graph), partial(write, graph))
        with tempfile.TemporaryDirectory(prefix="hipwright-run-") as folder, Archive(Path(folder)) as archive:
            found = search.run(archive, run, task, evaluator=self.bench.evaluator, source=source)
            if found.interrupted:
                raise WorkerError("the search was stopped")
            self.judge.evaluations += found.evaluations - found.cached
            for pair in self.hooks.search_pairs(archive, run.id):
                self.counts["of the search"] += pair.key not in self.pairs
                self._keep(replace(pair, task=self.task, provenance=pair.provenance | self._origin()))

    # ---------------------------------------------------------------- wrong programs

    def _negatives(self, verified: _Tried) -> None:
        """Add mutants of a verified program that the verifier refuses; the first one also as a repair.

        A mutant that passes is not a negative: its change has no effect.
        """
        made, rng = 0, _derived_seed("negatives", self.settings, self.entry)
        for number, (program, change) in enumerate(self.hooks.mutants(verified.program, rng)):
            if made >= self.settings.negatives or number >= MUTANTS_PER_NEGATIVE * self.settings.negatives:
                break
            evaluation = self.judge.verdict(program)
            if not self.judge.is_wrong(program, evaluation):
                self.counts[f"mutants: {evaluation.status}"] += 1
                continue
            made += 1
            self.counts["negative"] += 1
            self._add(program, evaluation, "negative", {"by": "a mutation", "mutation": change})
            if made == 1:
                evidence = self.hooks.evidence_text(evaluation, program)
                mended = {"by": "a mutation taken back", "mutation": change}
                self._add(verified.program, verified.evaluation, "repair", mended, before=program, evidence=evidence)

    # ---------------------------------------------------------------- rows

    def _add(
        self,
        program: Program,
        evaluation: Evaluation,
        kind: Kind,
        made: dict[str, Any],
        *,
        before: Program | None = None,
        evidence: str = "",
    ) -> None:
        self._keep(
            Pair(
                task=self.task,
                task_name=self.entry.name,
                task_source=self.entry.source,
                program=program,
                kind=kind,
                correct=evaluation.passed,
                status=evaluation.status,
                evidence=evidence if evaluation.passed else self.hooks.evidence_text(evaluation, program),
                before=before,
                coverage=evaluation.coverage,
                builds=build_summaries(evaluation),
                estimate_us=estimates_us(evaluation),
                timing=measured_timing(evaluation),
                provenance={"made": made, "verified": verification_facts(evaluation), **self._origin()},
            )
        )

    def _keep(self, pair: Pair) -> None:
        self.pairs.setdefault(pair.key, replace(pair, **self.about))

    def _origin(self) -> dict[str, Any]:
        synthetic = self.entry.synthetic
        task: dict[str, Any] = {"file": f"{self.entry.name}.py"}
        if synthetic is not None:
            draft = synthetic.draft
            task |= {"mode": draft.mode, "mind": draft.author, "seed": draft.seed, "parents": list(draft.parents)}
            task |= {"detail": draft.detail, **synthetic.provenance}
        return {"task": task, "seed": self.settings.seed, "hipwright": hipwright.__version__, "compiler": compiler()}


def verification_facts(evaluation: Evaluation) -> dict[str, Any]:
    """{target that ran the program: status, workloads, input families and worst error of its verdict}."""
    return dict(_verdicts(evaluation))


def _verdicts(evaluation: Evaluation) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, result in sorted(evaluation.targets.items()):
        if (verdict := result.verdict) is None or verdict.stage in ("parse", "build"):
            continue
        error = None if verdict.worst_error is None else float(f"{verdict.worst_error:.3g}")
        yield (
            name,
            {
                "status": verdict.status,
                "workloads": list(verdict.workloads),
                "families": list(verdict.checks.get("families", [])),
                "worst_error": error,
            },
        )
