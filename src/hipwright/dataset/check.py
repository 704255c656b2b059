"""A data set looked at with fresh eyes: a sample of its rows is verified again from scratch, on secret inputs.

Nothing is believed: no build cache, no archive, no stored verdict. A row is wrong when its program does not do what it
says: a right one is refused, a wrong one passes on each of `TRIES` draws, or its builds are not what it tells.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.dataset.judge import OpenTask
from hipwright.dataset.make import TaskMachine
from hipwright.dataset.records import Pair, built
from hipwright.dataset.workers import Opener, Pool
from hipwright.errors import HipwrightError, InfrastructureError, WorkerError
from hipwright.evaluation.results import compiler
from hipwright.events import Listener, silent
from hipwright.records import Evaluation, Program, Record
from hipwright.search.interfaces import INFRASTRUCTURE
from hipwright.verify import Oracle

TRIES = 3  # draws of inputs on which a program that is called wrong may be caught
HANG_S = 1800.0


class CheckedRow(Record, frozen=True, kw_only=True):
    """One row looked at. wrong: what it says and is not so, "" if all is; void: why it could not be looked at."""

    key: str
    task: str
    kind: str
    correct: bool
    wrong: str = ""
    void: str = ""


@dataclass
class CheckReport:
    """What a check found."""

    rows: int
    checked: list[CheckedRow] = field(default_factory=list)

    @property
    def wrong(self) -> list[CheckedRow]:
        """Rows that say what is not so."""
        return [one for one in self.checked if one.wrong]

    @property
    def void(self) -> list[CheckedRow]:
        """Rows that the machine kept from being looked at."""
        return [one for one in self.checked if one.void]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        looked = [one for one in self.checked if not one.void]
        return {
            "rows": self.rows,
            "checked": len(looked),
            "correct": sum(one.correct for one in looked),
            "wrong": [one.to_dict() for one in self.wrong],
            "void": [one.to_dict() for one in self.void],
        }


Group = tuple[Pair, ...]  # rows of one task


def check(
    pairs: Iterable[Pair], opener: Opener, *, sample: int, seed: int | None, workers: int, listener: Listener = silent
) -> CheckReport:
    """Verify `sample` rows again (0: all of them), drawn by the seed, secretly without one.

    opener: makes a worker's Machine, which must have an empty build cache. The listener is told "checked" {done,
    total, wrong}.
    """
    rows, chosen = draw(pairs, sample, seed)
    groups = _groups(chosen)
    report = CheckReport(rows)
    pool: Pool[Group, list[CheckedRow]] = Pool(min(workers, max(1, len(groups))), opener, _work, hang_s=HANG_S)
    with closing(pool.run(groups)) as results:
        for group, result in results:
            found = [_void(pair, result) for pair in group] if isinstance(result, HipwrightError) else result
            report.checked += found
            told = {"done": len(report.checked), "total": len(chosen), "wrong": len(report.wrong)}
            listener("checked", told)
    report.checked.sort(key=lambda one: (one.task, one.key))
    return report


def draw(pairs: Iterable[Pair], sample: int, seed: int | None) -> tuple[int, list[Pair]]:
    """(how many rows there are, a uniform sample of them); one pass, and only the sample in memory."""
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


def _groups(pairs: Sequence[Pair]) -> list[Group]:
    found: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[pair.task_name, pair.task_source].append(pair)
    return [tuple(group) for group in found.values()]


def _void(pair: Pair, error: HipwrightError) -> CheckedRow:
    """A task that does not open makes its rows wrong; the machine's fault says nothing of them."""
    told = {"key": pair.key, "task": pair.task_name, "kind": pair.kind, "correct": pair.correct}
    what = "void" if isinstance(error, InfrastructureError) else "wrong"
    return CheckedRow(**told, **{what: error.message})  # type: ignore[arg-type]


# ---------------------------------------------------------------- in a worker


def _work(machine: TaskMachine, group: Group) -> list[CheckedRow]:
    first = group[0]
    with tempfile.TemporaryDirectory(prefix="hipwright-task-") as folder:
        path = Path(folder) / f"{first.task_name}.py"
        path.write_text(first.task_source, encoding="utf-8")
        with machine.open(path, seed=None, listener=silent) as bench:
            return [_checked(bench, pair) for pair in group]


def _checked(bench: OpenTask, pair: Pair) -> CheckedRow:
    told = {"key": pair.key, "task": pair.task_name, "kind": pair.kind, "correct": pair.correct}
    try:
        return CheckedRow(**told, wrong=next(_complaints(bench, pair), ""))  # type: ignore[arg-type]
    except InfrastructureError as error:
        return _void(pair, error)


def _complaints(bench: OpenTask, pair: Pair) -> Iterator[str]:
    """What is not as the row says."""
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
        found = built(evaluation)
        for target in sorted(found.keys() & pair.builds.keys()):
            if found[target] != pair.builds[target]:
                yield f"its build for {target} is another"


def _judged(bench: OpenTask, program: Program, right: bool, what: str) -> Generator[str, None, Evaluation]:
    """Complain of a verdict that is not the row's. Returns the last evaluation."""
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
    """On inputs drawn now, long after the program was fixed."""
    evaluation = bench.evaluator.evaluate(program, Oracle(bench.handle, seed=None))
    if evaluation.fault in INFRASTRUCTURE:
        raise WorkerError(evaluation.message or f"{evaluation.fault} at fault", status=evaluation.status)
    return evaluation
