"""Verifies a sample of a data set's rows again from scratch, on new inputs.

No build cache, archive or stored verdict is used. A row is wrong when a correct program is refused, when a wrong one
passes on each of `TRIES` draws of inputs, or when its coverage or builds differ from the recorded ones.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.dataset.judge import OpenTask
from hipwright.dataset.make import TaskMachine
from hipwright.dataset.records import Pair, build_summaries
from hipwright.dataset.workers import Opener, Pool
from hipwright.errors import HipwrightError, InfrastructureError, WorkerError
from hipwright.evaluation.results import compiler
from hipwright.events import Listener, silent
from hipwright.records import Evaluation, Program, Record
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.verify import Oracle

TRIES = 3  # draws of inputs on which a program recorded as wrong may be refused
JOB_TIMEOUT_S = 1800.0


class CheckedRow(Record, frozen=True, kw_only=True):
    """The result for one row. wrong: its first difference from the record; void: why it was not checked; else ""."""

    key: str
    task: str
    kind: str
    correct: bool
    wrong: str = ""
    void: str = ""


@dataclass
class CheckReport:
    """The results of a check. rows: how many the data set has."""

    rows: int
    checked: list[CheckedRow] = field(default_factory=list)

    @property
    def wrong(self) -> list[CheckedRow]:
        """Rows that differ from their record."""
        return [one for one in self.checked if one.wrong]

    @property
    def void(self) -> list[CheckedRow]:
        """Rows that infrastructure errors kept from being checked."""
        return [one for one in self.checked if one.void]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        checked = [one for one in self.checked if not one.void]
        return {
            "rows": self.rows,
            "checked": len(checked),
            "correct": sum(one.correct for one in checked),
            "wrong": [one.to_dict() for one in self.wrong],
            "void": [one.to_dict() for one in self.void],
        }


Group = tuple[Pair, ...]  # rows of one task


def check(
    pairs: Iterable[Pair], opener: Opener, *, sample: int, seed: int | None, workers: int, listener: Listener = silent
) -> CheckReport:
    """Verify `sample` rows again (0: all of them), drawn by the seed; without one the draw is not reproducible.

    opener: opens a worker's Machine, which must have an empty build cache. Event for the listener: "checked" {done,
    total, wrong}.
    """
    rows, chosen = sample_rows(pairs, sample, seed)
    groups = groups_of(chosen)
    report = CheckReport(rows)
    count = min(workers, max(1, len(groups)))
    pool: Pool[Group, list[CheckedRow]] = Pool(count, opener, _work, timeout_s=JOB_TIMEOUT_S)
    with closing(pool.run(groups)) as results:
        for group, result in results:
            found = [_void(pair, result) for pair in group] if isinstance(result, HipwrightError) else result
            report.checked += found
            progress = {"done": len(report.checked), "total": len(chosen), "wrong": len(report.wrong)}
            listener("checked", progress)
    report.checked.sort(key=lambda one: (one.task, one.key))
    return report


def sample_rows(pairs: Iterable[Pair], sample: int, seed: int | None) -> tuple[int, list[Pair]]:
    """(the number of rows, a uniform sample of them), in one pass with only the sample in memory."""
    rng: random.Random = random.SystemRandom() if seed is None else random.Random(seed)
    chosen: list[Pair] = []
    rows = 0
    for pair in pairs:
        rows += 1
        if not sample or len(chosen) < sample:
            chosen.append(pair)
        elif (at := rng.randrange(rows)) < sample:
            chosen[at] = pair
    return rows, chosen


def groups_of(pairs: Sequence[Pair]) -> list[Group]:
    """The rows by task."""
    found: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[pair.task_name, pair.task_source].append(pair)
    return [tuple(group) for group in found.values()]


def _void(pair: Pair, error: HipwrightError) -> CheckedRow:
    """The result of a row whose task ended in an error: wrong where the task is at fault, void for infrastructure."""
    fields = {"key": pair.key, "task": pair.task_name, "kind": pair.kind, "correct": pair.correct}
    what = "void" if isinstance(error, InfrastructureError) else "wrong"
    return CheckedRow(**fields, **{what: error.message})  # type: ignore[arg-type]


# ---------------------------------------------------------------- in a worker


@contextmanager
def opened_group(machine: TaskMachine, group: Group) -> Iterator[OpenTask]:
    """The task of a group of rows, opened with a secret seed."""
    first = group[0]
    with tempfile.TemporaryDirectory(prefix="hipwright-task-") as folder:
        path = Path(folder) / f"{first.task_name}.py"
        path.write_text(first.task_source, encoding="utf-8")
        with machine.open(path, seed=None, listener=silent) as bench:
            yield bench


def _work(machine: TaskMachine, group: Group) -> list[CheckedRow]:
    with opened_group(machine, group) as bench:
        return [_checked(bench, pair) for pair in group]


def _checked(bench: OpenTask, pair: Pair) -> CheckedRow:
    fields = {"key": pair.key, "task": pair.task_name, "kind": pair.kind, "correct": pair.correct}
    try:
        return CheckedRow(**fields, wrong=next(_differences(bench, pair), ""))  # type: ignore[arg-type]
    except InfrastructureError as error:
        return _void(pair, error)


def _differences(bench: OpenTask, pair: Pair) -> Iterator[str]:
    """The differences between a row and its evaluation now."""
    evaluation = yield from _judged(bench, pair.program, pair.correct, "the program")
    if pair.before is not None and pair.kind in ("repair", "step"):
        yield from _judged(bench, pair.before, pair.kind == "step", "the program before")
    if (pair.kind == "negative") == pair.correct:
        yield f"its kind is {pair.kind} and it is called {'right' if pair.correct else 'wrong'}"
    if not evaluation.passed:
        return
    if abs(evaluation.coverage - pair.coverage) > 0.01:
        yield f"its coverage is {evaluation.coverage}, not {pair.coverage}"
    if pair.provenance.get("compiler") == compiler():
        found = build_summaries(evaluation)
        for target in sorted(found.keys() & pair.builds.keys()):
            if found[target] != pair.builds[target]:
                yield f"its build for {target} is another"


def _judged(bench: OpenTask, program: Program, right: bool, what: str) -> Generator[str, None, Evaluation]:
    """Yields a difference in the verdict; returns the last evaluation."""
    for _ in range(1 if right else TRIES):
        evaluation = _evaluate(bench, program)
        if not evaluation.passed:
            break
    if right and not evaluation.passed:
        yield f"{what} is called right: {evaluation.status}: {evaluation.message}"[:500]
    if not right and evaluation.passed:
        yield f"{what} is called wrong and passes the full verification"
    return evaluation


def _evaluate(bench: OpenTask, program: Program) -> Evaluation:
    """Evaluate a program on inputs drawn now. Raises WorkerError for infrastructure faults."""
    evaluation = bench.evaluator.evaluate(program, Oracle(bench.handle, seed=None))
    if evaluation.fault in INFRASTRUCTURE:
        raise WorkerError(evaluation.message or f"{evaluation.fault} at fault", status=evaluation.status)
    return evaluation
