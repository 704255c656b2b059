"""Run the corpus on a verifier, and count: the confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, get_args

from hipwright.audit.bench import Verifier
from hipwright.audit.cases import CorpusCase, Kind, by_task
from hipwright.audit.found import JudgedCase, ObservedVerdict, Outcome, compare, summary
from hipwright.errors import HipwrightError

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
FAILURES = ("accepted", "rejected")
Listener = Callable[[JudgedCase], None]


def run(
    verifier: Verifier,
    cases: Sequence[CorpusCase],
    *,
    workers: int = 2,
    listener: Listener = lambda _: None,
    done: Callable[[CorpusCase], None] = lambda _: None,
) -> list[JudgedCase]:
    """Judge every case -> the results in the order of `cases`.

    Cases of one task run one after another in time, so that it need not stay open; `done` is told the last of each.
    """
    groups = by_task(cases)
    left = {task: len(members) for task, members in groups.items()}
    order = [case for members in groups.values() for case in members]
    results: dict[str, JudgedCase] = {}
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for case, found in zip(order, pool.map(lambda c: _judge(verifier, c), order), strict=True):
            results[case.id] = judged = compare(case, verifier.name, found)
            listener(judged)
            left[case.task] -= 1
            if not left[case.task]:
                done(case)
    return [results[case.id] for case in cases]


def _judge(verifier: Verifier, case: CorpusCase) -> ObservedVerdict:
    try:
        return verifier.judge(case)
    except HipwrightError as error:
        return ObservedVerdict(status="unscorable", fault=error.verdict().fault or "service", message=error.message)


@dataclass
class Matrix:
    """How often each kind of candidate met each outcome, for one verifier. Rows are "honest", "broken", "hostile"."""

    verifier: str
    counts: dict[Kind, Counter[Outcome]] = field(default_factory=dict)
    judged: list[JudgedCase] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """Hostile and broken candidates that earned something."""
        return sum(counts["accepted"] for counts in self.counts.values())

    @property
    def rejected(self) -> int:
        """Honest ones that did not pass."""
        return sum(counts["rejected"] for counts in self.counts.values())

    @property
    def void(self) -> int:
        """No verdict: the machine's or the service's fault."""
        return sum(counts["void"] for counts in self.counts.values())

    @property
    def fooled(self) -> bool:
        """Whether the verifier was wrong about anybody."""
        return bool(self.accepted or self.rejected)

    def but_right(self) -> list[JudgedCase]:
        """What did not go as expected, worst first; candidates that were not run are not among them."""
        order = {"accepted": 0, "rejected": 1, "void": 2, "wrong reason": 3}
        return sorted((j for j in self.judged if j.outcome in order), key=lambda j: order[j.outcome])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "verifier": self.verifier,
            "counts": {kind: {o: counts[o] for o in OUTCOMES} for kind, counts in self.counts.items()},
            "accepted": self.accepted,
            "rejected": self.rejected,
            "seconds": round(sum(j.found.seconds for j in self.judged), 2),
            "cases": [
                {
                    "case": j.case.id,
                    "task": j.case.task,
                    "row": j.case.row,
                    "outcome": j.outcome,
                    "why": j.why,
                    "found": summary(j.found),
                }
                for j in self.judged
            ],
        }


def matrix(results: Iterable[JudgedCase]) -> dict[str, Matrix]:
    """The confusion matrix of each verifier that occurs."""
    found: dict[str, Matrix] = {}
    for judged in results:
        one = found.setdefault(judged.verifier, Matrix(judged.verifier))
        one.counts.setdefault(judged.case.kind, Counter())[judged.outcome] += 1
        one.judged.append(judged)
    return found
