"""Many tasks made into pairs by worker processes, each row on disk as soon as its task is done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hipwright.dataset.make import MUTANTS, RESCUE, RUNGS, BuildSettings, Hooks, TaskPairs, make
from hipwright.dataset.store import DatasetStore, TaskOutcome
from hipwright.dataset.tasks import DatasetTask
from hipwright.dataset.workers import Opener, Pool
from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.events import Listener, silent

EVALUATION_S = 120.0  # one takes less: each of its steps has a limit of its own


@dataclass
class BuildReport:
    """What a build did, this time: rows by kind, outcomes of all tasks so far, and the time that it took."""

    tasks: int
    outcomes: dict[str, TaskOutcome] = field(default_factory=dict)
    made: int = 0
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
        """What was tried, over all tasks."""
        found: Counter[str] = Counter()
        for one in self.outcomes.values():
            found.update(one.counts)
        return found

    @property
    def covered(self) -> int:
        """Tasks with a verified program whose own kernels do at least half of the work."""
        return sum(one.status == "verified" and one.coverage >= 0.5 for one in self.outcomes.values())

    def an_hour(self, count: int) -> float:
        """A rate; 0 before anything is done."""
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
                "tasks": self.made,
                "pairs": self.pairs,
                "verified_pairs": self.verified,
                "evaluations": self.evaluations,
                "seconds": round(self.seconds, 1),
                "pairs_an_hour": round(self.an_hour(self.pairs)),
                "verified_pairs_an_hour": round(self.an_hour(self.verified)),
                "evaluations_an_hour": round(self.an_hour(self.evaluations)),
            },
            "failed": [{"task": o.name, "status": o.status, "why": o.why} for o in self.failures()],
        }


def build(
    entries: Sequence[DatasetTask],
    store: DatasetStore,
    opener: Opener,
    settings: BuildSettings,
    hooks: Hooks,
    *,
    workers: int,
    listener: Listener = silent,
    dress: Callable[[DatasetStore], dict[str, dict[str, Any]]] = lambda store: {},
) -> BuildReport:
    """Make the pairs of every task that has none yet. opener: makes a worker's Machine; dress: fields (splits) that
    need the whole data set. Raises what keeps workers from opening; KeyboardInterrupt loses the tasks under way alone.

    The listener is told "built" {report, outcome} after each task.
    """
    todo = [entry for entry in entries if not store.done(entry.key)]
    mine = {entry.key for entry in entries}
    report = BuildReport(len(entries), {key: one for key, one in store.outcomes.items() if key in mine})
    work = partial(_work, settings=settings, hooks=hooks)
    each = RUNGS + max(settings.variants, RESCUE) + MUTANTS * settings.negatives + settings.budget
    pool: Pool[DatasetTask, TaskPairs] = Pool(min(workers, len(todo)), opener, work, hang_s=EVALUATION_S * each)
    begun = time.monotonic()
    with closing(pool.run(todo)) as results:
        for entry, result in results:
            product = _failed(entry, result) if isinstance(result, HipwrightError) else result
            store.add(product.outcome, product.pairs)
            _count(report, product, time.monotonic() - begun)
            listener("built", {"report": report, "outcome": product.outcome})
    if todo or not store.finished:
        store.finish([entry.key for entry in entries], dress(store))
    return report


def _work(machine: Any, entry: DatasetTask, *, settings: BuildSettings, hooks: Hooks) -> TaskPairs:
    return make(machine, entry, settings, hooks)


def _failed(entry: DatasetTask, error: HipwrightError) -> TaskPairs:
    """A fault of the machine is tried again by the next build; a bug of ours is named like any other failure."""
    status = "fault" if isinstance(error, InfrastructureError) else "failed"
    return TaskPairs(TaskOutcome(entry=entry.key, name=entry.name, status=status, why=error.message[:500]))  # type: ignore[arg-type]


def _count(report: BuildReport, product: TaskPairs, seconds: float) -> None:
    report.outcomes[product.outcome.entry] = product.outcome
    report.made += 1
    report.pairs += len(product.pairs)
    report.verified += sum(pair.correct for pair in product.pairs)
    report.evaluations += product.outcome.evaluations
    report.seconds = seconds
