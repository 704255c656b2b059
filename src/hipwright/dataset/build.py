"""Builds a data set: worker processes make the pairs of tasks; the rows of a task are on disk when it is done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hipwright.dataset.make import (
    MAX_ATTEMPTS,
    MIN_SCHEDULES,
    MUTANTS_PER_NEGATIVE,
    BuildSettings,
    Hooks,
    TaskPairs,
    make_pairs,
)
from hipwright.dataset.store import DatasetStore, TaskOutcome
from hipwright.dataset.tasks import DatasetTask
from hipwright.dataset.workers import Opener, Pool
from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.events import Listener, silent

EVALUATION_TIMEOUT_S = 120.0  # an upper bound of one evaluation, whose steps have shorter limits


@dataclass
class BuildReport:
    """tasks: how many there are; outcomes: of all tasks so far, by entry; the other figures are of this run."""

    tasks: int
    outcomes: dict[str, TaskOutcome] = field(default_factory=dict)
    tasks_done: int = 0
    pairs: int = 0
    verified: int = 0
    evaluations: int = 0
    seconds: float = 0.0

    @property
    def statuses(self) -> Counter[str]:
        """Tasks by status."""
        return Counter(one.status for one in self.outcomes.values())

    @property
    def counts(self) -> Counter[str]:
        """What was tried, summed over the tasks."""
        found: Counter[str] = Counter()
        for one in self.outcomes.values():
            found.update(one.counts)
        return found

    @property
    def covered(self) -> int:
        """The number of tasks with a verified program of a coverage of at least 0.5."""
        return sum(one.status == "verified" and one.coverage >= 0.5 for one in self.outcomes.values())

    def per_hour(self, count: int) -> float:
        """`count` per hour of this run; 0 before anything is done."""
        return 3600.0 * count / self.seconds if self.seconds else 0.0

    def failures(self) -> list[TaskOutcome]:
        """Tasks without a verified program."""
        return [one for one in self.outcomes.values() if one.status != "verified"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "tasks": self.tasks,
            "statuses": dict(self.statuses),
            "coverage_half": self.covered,
            "counts": dict(sorted(self.counts.items())),
            "pairs": sum(len(o.pairs) for o in self.outcomes.values()),
            "now": {
                "tasks": self.tasks_done,
                "pairs": self.pairs,
                "verified_pairs": self.verified,
                "evaluations": self.evaluations,
                "seconds": round(self.seconds, 1),
                "pairs_an_hour": round(self.per_hour(self.pairs)),
                "verified_pairs_an_hour": round(self.per_hour(self.verified)),
                "evaluations_an_hour": round(self.per_hour(self.evaluations)),
            },
            "failed": [{"task": o.name, "status": o.status, "why": o.why} for o in self.failures()],
        }


Made = TaskPairs | HipwrightError
Maker = Callable[[Sequence[DatasetTask], Callable[[DatasetTask, Made], None]], None]
"""Makes the pairs of tasks, and hands over those of each, or the error that ended it, as soon as they are there."""


def in_workers(opener: Opener, settings: BuildSettings, hooks: Hooks, workers: int) -> Maker:
    """Makes pairs in worker processes of this machine. opener: opens a worker's Machine."""

    def make(todo: Sequence[DatasetTask], took: Callable[[DatasetTask, Made], None]) -> None:
        work = partial(_work, settings=settings, hooks=hooks)
        pool: Pool[DatasetTask, TaskPairs] = Pool(min(workers, len(todo)), opener, work, timeout_s=timeout_s(settings))
        with closing(pool.run(todo)) as results:
            for entry, result in results:
                took(entry, result)

    return make


def build(
    entries: Sequence[DatasetTask],
    store: DatasetStore,
    maker: Maker,
    *,
    listener: Listener = silent,
    final_fields: Callable[[DatasetStore], dict[str, dict[str, Any]]] = lambda store: {},
) -> BuildReport:
    """Make the pairs of every task that has none yet. final_fields: {pair key: fields} that need the whole data set,
    such as splits.

    Raises what the maker raises, such as the error that kept a worker from opening. KeyboardInterrupt loses only the
    tasks in progress. Event for the listener: "built" {report, outcome} after each task.
    """
    todo = [entry for entry in entries if not store.done(entry.key)]
    keys = {entry.key for entry in entries}
    report = BuildReport(len(entries), {key: one for key, one in store.outcomes.items() if key in keys})
    begun = time.monotonic()

    def took(entry: DatasetTask, result: Made) -> None:
        made = _failed(entry, result) if isinstance(result, HipwrightError) else result
        store.add(made.outcome, made.pairs)
        _count(report, made, time.monotonic() - begun)
        listener("built", {"report": report, "outcome": made.outcome})

    if todo:
        maker(todo, took)
    if todo or not store.finished:
        store.finish([entry.key for entry in entries], final_fields(store))
    return report


def timeout_s(settings: BuildSettings) -> float:
    """An upper bound of the time for one task: its most evaluations, each of the longest duration."""
    programs = MAX_ATTEMPTS + max(settings.variants, MIN_SCHEDULES)
    evaluations = programs + MUTANTS_PER_NEGATIVE * settings.negatives + settings.budget
    return EVALUATION_TIMEOUT_S * evaluations


def _work(machine: Any, entry: DatasetTask, *, settings: BuildSettings, hooks: Hooks) -> TaskPairs:
    return make_pairs(machine, entry, settings, hooks)


def _failed(entry: DatasetTask, error: HipwrightError) -> TaskPairs:
    """The outcome of a task that ended in an error: "fault" is tried again by the next build, "failed" is not."""
    status = "fault" if isinstance(error, InfrastructureError) else "failed"
    return TaskPairs(TaskOutcome(entry=entry.key, name=entry.name, status=status, why=error.message[:500]))  # type: ignore[arg-type]


def _count(report: BuildReport, made: TaskPairs, seconds: float) -> None:
    report.outcomes[made.outcome.entry] = made.outcome
    report.tasks_done += 1
    report.pairs += len(made.pairs)
    report.verified += sum(pair.correct for pair in made.pairs)
    report.evaluations += made.outcome.evaluations
    report.seconds = seconds
