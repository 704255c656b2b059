"""Runs the corpus on a verifier and counts the outcomes: the confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, get_args

from hipwright.audit.cases import CorpusCase, Kind, by_task
from hipwright.audit.verdicts import JudgedCase, ObservedVerdict, Outcome, judge_case, summary
from hipwright.audit.verifiers import Verifier
from hipwright.errors import FleetAway, HipwrightError
from hipwright.events import doing

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
FAILURES = ("accepted", "rejected")
JudgedListener = Callable[[JudgedCase], None]


def run_corpus(
    verifier: Verifier,
    cases: Sequence[CorpusCase],
    *,
    workers: int = 2,
    listener: JudgedListener = lambda _: None,
    done: Callable[[CorpusCase], None] = lambda _: None,
) -> list[JudgedCase]:
    """Judges every case; the results are in the order of `cases`.

    Cases of one task run one after another, so that the task need not stay open; `done` is called after the last of
    each.
    """
    groups = by_task(cases)
    remaining = {task: len(members) for task, members in groups.items()}
    order = [case for members in groups.values() for case in members]
    results: dict[str, JudgedCase] = {}
    text = f"judging candidates by {verifier.name}"
    doing(text, 0, len(order))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for case, observed in zip(order, pool.map(lambda c: _judge(verifier, c), order), strict=True):
            results[case.id] = judged = judge_case(case, verifier.name, observed)
            listener(judged)
            doing(text, len(results), len(order))
            remaining[case.task] -= 1
            if not remaining[case.task]:
                done(case)
    return [results[case.id] for case in cases]


def _judge(verifier: Verifier, case: CorpusCase) -> ObservedVerdict:
    try:
        return verifier.judge(case)
    except FleetAway:
        raise
    except HipwrightError as error:
        return ObservedVerdict(status="unscorable", fault=error.verdict().fault or "service", message=error.message)


@dataclass
class ConfusionMatrix:
    """The number of candidates by kind and outcome, for one verifier. Rows are "honest", "broken", "hostile"."""

    verifier: str
    counts: dict[Kind, Counter[Outcome]] = field(default_factory=dict)
    judged: list[JudgedCase] = field(default_factory=list)

    @property
    def accepted(self) -> int:
        """Hostile and broken candidates that earned credit."""
        return sum(counts["accepted"] for counts in self.counts.values())

    @property
    def rejected(self) -> int:
        """Honest candidates that did not pass."""
        return sum(counts["rejected"] for counts in self.counts.values())

    @property
    def void(self) -> int:
        """Candidates without a verdict, by the fault of the machine or the service."""
        return sum(counts["void"] for counts in self.counts.values())

    @property
    def failed(self) -> bool:
        """Whether the verifier accepted or rejected any candidate wrongly."""
        return bool(self.accepted or self.rejected)

    def unexpected(self) -> list[JudgedCase]:
        """Judged cases without the expected outcome, worst first; without those that were not run."""
        order = {"accepted": 0, "rejected": 1, "void": 2, "wrong reason": 3}
        return sorted((j for j in self.judged if j.outcome in order), key=lambda j: order[j.outcome])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "verifier": self.verifier,
            "counts": {kind: {o: counts[o] for o in OUTCOMES} for kind, counts in self.counts.items()},
            "accepted": self.accepted,
            "rejected": self.rejected,
            "seconds": round(sum(j.observed.seconds for j in self.judged), 2),
            "cases": [
                {
                    "case": j.case.id,
                    "task": j.case.task,
                    "row": j.case.row,
                    "outcome": j.outcome,
                    "why": j.why,
                    "found": summary(j.observed),
                }
                for j in self.judged
            ],
        }


def confusion_matrices(results: Iterable[JudgedCase]) -> dict[str, ConfusionMatrix]:
    """The confusion matrix of each verifier."""
    observed: dict[str, ConfusionMatrix] = {}
    for judged in results:
        one = observed.setdefault(judged.verifier, ConfusionMatrix(judged.verifier))
        one.counts.setdefault(judged.case.kind, Counter())[judged.outcome] += 1
        one.judged.append(judged)
    return observed
