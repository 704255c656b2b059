"""The pairs of one task: the engine's program, its schedules, a search's steps, and broken programs with evidence.

Every program is judged by the whole evaluator; `correct` is its verdict and nothing else. All is drawn from the task
and the seed, so that a task that is made again gives the same rows.
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
from hipwright.dataset.attempts import Rung, library, rungs
from hipwright.dataset.describe import describe
from hipwright.dataset.judge import OpenTask, PairJudge
from hipwright.dataset.records import STEP_GAIN, Kind, Pair, built, estimates, timing
from hipwright.dataset.store import TaskOutcome
from hipwright.dataset.tasks import DatasetTask
from hipwright.engine import space, write
from hipwright.errors import HipwrightError, InfrastructureError, WorkerError
from hipwright.evaluation.results import compiler
from hipwright.events import Listener, silent
from hipwright.records import Evaluation, Program, Record, content_key
from hipwright.search import fitness
from hipwright.search.operators import Choices, mutate, sample

RESCUE = 4  # more schedules that are tried when the engine's own choice does not pass
DRAWS = 6  # draws for each schedule that is wanted: in a small space many are alike
MUTANTS = 12  # broken programs that are tried for each negative that is wanted
RUNGS = 6  # the engine's programs that are tried at most, other schedules aside
SCHEDULES = "the engine's schedules"


class TaskMachine(Protocol):
    """What judges programs (hipwright.machine.Machine)."""

    def open(self, task: Path, *, seed: int | None, listener: Listener) -> AbstractContextManager[OpenTask]:
        """Open a task file."""
        ...


class BuildSettings(Record, frozen=True, kw_only=True):
    """What decides the rows. variants, negatives: wanted a task; budget: evaluations of a search a task, 0 for none."""

    targets: tuple[str, ...]
    variants: int = 3
    negatives: int = 1
    budget: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Hooks:
    """What lies above this layer; functions of modules, so that a worker can be handed them.

    mutants: broken forms of a program with what was changed, in an order drawn from the number; words: a verdict's
    evidence; lessons: the pairs of a search run.
    """

    mutants: Callable[[Program, int], Iterable[tuple[Program, str]]]
    words: Callable[[Evaluation, Program], str]
    lessons: Callable[[Archive, str], Iterable[Pair]]


@dataclass(frozen=True)
class TaskPairs:
    """What one task gave."""

    outcome: TaskOutcome
    pairs: tuple[Pair, ...] = ()


def make(machine: TaskMachine, entry: DatasetTask, settings: BuildSettings, hooks: Hooks) -> TaskPairs:
    """The pairs of a task. A task that fails gives an outcome that says why; the machine's faults are raised."""
    begun = time.monotonic()
    seed = _number("inputs", settings, entry)
    try:
        with tempfile.TemporaryDirectory(prefix="hipwright-task-") as folder:
            path = Path(folder) / f"{entry.name}.py"
            path.write_text(entry.source, encoding="utf-8")
            with machine.open(path, seed=seed, listener=silent) as bench:
                judge = PairJudge(bench, _number("second inputs", settings, entry))
                product = _Maker(bench, judge, entry, settings, hooks).make()
    except InfrastructureError:
        raise
    except (HipwrightError, ValueError, KeyError, ArithmeticError, RecursionError) as error:
        why = error.message if isinstance(error, HipwrightError) else f"{type(error).__name__}: {error}"
        product = TaskPairs(TaskOutcome(entry=entry.key, name=entry.name, status="failed", why=why[:500]))
    seconds = round(time.monotonic() - begun, 3)
    return TaskPairs(replace(product.outcome, seconds=seconds), product.pairs)


def _number(what: str, settings: BuildSettings, entry: DatasetTask) -> int:
    return int(content_key(f"dataset {what}", str(settings.seed), entry.key)[:12], 16)


@dataclass(frozen=True)
class _Tried:
    program: Program
    evaluation: Evaluation
    choices: Choices


@dataclass
class _Maker:
    """One task while its pairs are made."""

    bench: OpenTask
    judge: PairJudge
    entry: DatasetTask
    settings: BuildSettings
    hooks: Hooks
    pairs: dict[str, Pair] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    tried: list[_Tried] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # keys of the programs that were tried

    def make(self) -> TaskPairs:
        handle = self.bench.handle
        self.task = self.entry.made.task if self.entry.made else handle.task.key
        workload = handle.task.workloads[0]
        captured = handle.capture(workload.name)
        self.about = describe(self.entry, captured, workload.specs)
        graph = Graph.from_dict(captured)
        rung = self._engine(graph)
        self._variants(rung)
        if not self._good():
            self._write(library(graph))
        if good := self._good():
            self._search(rung.graph)
            self._step(good)
            self._negatives(good[0])
        return TaskPairs(self._outcome(good), tuple(self.pairs.values()))

    def _good(self) -> list[_Tried]:
        return [one for one in self.tried if one.evaluation.passed]

    def _outcome(self, good: list[_Tried]) -> TaskOutcome:
        first = self.tried[0].evaluation
        return TaskOutcome(
            entry=self.entry.key,
            name=self.entry.name,
            task=self.task,
            status="verified" if good else "unverified",
            why="" if good else f"{first.status}: {first.message}"[:500],
            coverage=max((one.evaluation.coverage for one in good), default=0.0),
            pairs=tuple(self.pairs),
            counts=dict(sorted(self.counts.items())),
            evaluations=self.judge.evaluations,
        )

    # ---------------------------------------------------------------- programs that should be right

    def _engine(self, graph: Graph) -> Rung:
        """The engine's own choice; where it is refused, what gives up something, until one passes.

        -> the rung that other schedules are of: the one that passed, or the first.
        """
        ladder = list(rungs(graph))
        for rung in ladder:
            self._write(rung)
            if self._good():
                return rung
        return ladder[0]

    def _write(self, rung: Rung) -> None:
        choices = rung.choices()
        self._try(write(rung.graph, choices), choices, "engine", rung.by)

    def _variants(self, rung: Rung) -> None:
        """Other schedules: near the engine's own and anywhere in the space, in turn. More until one passes."""
        choice, rng = space(rung.graph), random.Random(_number("variants", self.settings, self.entry))
        wanted = self.settings.variants if self._good() else max(self.settings.variants, RESCUE)
        most = len(self.seen) + wanted
        for draw in range(wanted * DRAWS):
            if len(self.seen) >= most:
                break
            drawn = mutate(choice, [], rng) if draw % 2 == 0 else sample(choice, [], rng)
            choices = {**drawn, **rung.fixed}
            self._try(write(rung.graph, choices), choices, "variant", SCHEDULES)

    def _try(self, program: Program, choices: Choices, kind: Kind, by: str) -> None:
        """Judge a program, each once."""
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

    def _step(self, good: list[_Tried]) -> None:
        """From the slowest schedule to the fastest, where that is a gain worth learning from."""
        figures = [(found.value, one) for one in good if (found := fitness.score(one.evaluation)) is not None]
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
        """A search of the engine's space, in an archive of its own that is thrown away."""
        if not self.settings.budget:
            return
        task = self.bench.handle.task
        seed = _number("search", self.settings, self.entry) % (1 << 31)
        run = search.new_run(task, self.settings.targets, budget=self.settings.budget, seed=seed)
        run = replace(run, id=f"dataset-{self.entry.key}")
        source = search.EngineSource(space(graph), partial(write, graph))
        with tempfile.TemporaryDirectory(prefix="hipwright-run-") as folder, Archive(Path(folder)) as archive:
            found = search.run(archive, run, task, evaluator=self.bench.evaluator, source=source)
            if found.interrupted:
                raise WorkerError("the search was stopped")
            self.judge.evaluations += found.evaluations - found.cached
            for pair in self.hooks.lessons(archive, run.id):
                self.counts["of the search"] += pair.key not in self.pairs
                self._keep(replace(pair, task=self.task, provenance=pair.provenance | self._origin()))

    # ---------------------------------------------------------------- programs that are wrong

    def _negatives(self, honest: _Tried) -> None:
        """Small changes to a verified program that the verifier refuses; each once with the program that mends it.

        What it passes is no negative, whatever was changed: the change may not matter.
        """
        made, rng = 0, _number("negatives", self.settings, self.entry)
        for number, (program, said) in enumerate(self.hooks.mutants(honest.program, rng)):
            if made >= self.settings.negatives or number >= MUTANTS * self.settings.negatives:
                break
            evaluation = self.judge.verdict(program)
            if not self.judge.is_wrong(program, evaluation):
                self.counts[f"mutants: {evaluation.status}"] += 1
                continue
            made += 1
            self.counts["negative"] += 1
            self._add(program, evaluation, "negative", {"by": "a mutation", "mutation": said})
            if made == 1:
                words = self.hooks.words(evaluation, program)
                mended = {"by": "a mutation taken back", "mutation": said}
                self._add(honest.program, honest.evaluation, "repair", mended, before=program, evidence=words)

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
                evidence=evidence if evaluation.passed else self.hooks.words(evaluation, program),
                before=before,
                coverage=evaluation.coverage,
                builds=built(evaluation),
                estimate_us=estimates(evaluation),
                timing=timing(evaluation),
                provenance={"made": made, "verified": verified(evaluation), **self._origin()},
            )
        )

    def _keep(self, pair: Pair) -> None:
        self.pairs.setdefault(pair.key, replace(pair, **self.about))

    def _origin(self) -> dict[str, Any]:
        made = self.entry.made
        task: dict[str, Any] = {"file": f"{self.entry.name}.py"}
        if made is not None:
            draft = made.draft
            task |= {"mode": draft.mode, "mind": draft.author, "seed": draft.seed, "parents": list(draft.parents)}
            task |= {"detail": draft.detail, **made.provenance}
        return {"task": task, "seed": self.settings.seed, "hipwright": hipwright.__version__, "compiler": compiler()}


def verified(evaluation: Evaluation) -> dict[str, Any]:
    """What stands behind a verdict, by the target that ran the program: workloads, families of inputs, worst error."""
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
