"""What a verdict rests on: which judged cases would have rejected each trivial answer, and whether they are enough."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hipwright.verify.degenerate import MIN_DISCRIMINATING, TRIVIAL
from hipwright.verify.oracle import Oracle, VerificationCase


class JudgedEvidence:
    """The judged cases of one program.

    A pass needs, for each answer of `degenerate.TRIVIAL`, at least `MIN_DISCRIMINATING` judged cases that reject it, at
    shapes of the task's kind: those in which no dimension has shrunk to 1. KernelBench's own rule has no such minimum.
    """

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._rejects: dict[str, frozenset[str]] = {}
        self._at: dict[str, str] = {}
        self._large: list[str] = []

    def add_large(self, workload: str) -> None:
        """Records a workload judged on the device alone, where nobody counts what its cases reject."""
        self._large.append(workload)

    def add(self, case: VerificationCase) -> None:
        """Records a case that the program passed."""
        self._rejects[case.name] = case.rejects
        self._at[case.name] = case.workload

    def names(self) -> frozenset[str]:
        """The cases so far."""
        return frozenset(self._at)

    def workloads(self) -> tuple[str, ...]:
        """The workloads that the verdict rests on."""
        return tuple(dict.fromkeys([*self._at.values(), *self._large]))

    def counts(self) -> Counter[str]:
        """The number of judged cases at shapes of the task's kind that reject each trivial answer."""
        kept = [self._rejects[name] for name, workload in self._at.items() if self._oracle.of_kind(workload)]
        return Counter({answer: sum(answer in rejects for rejects in kept) for answer in TRIVIAL})

    def lacking(self) -> str:
        """Why the judged cases are too few for a pass, or ""."""
        if self._oracle.kernelbench or (self._large and not self._at):
            return ""
        few = {answer: count for answer, count in self.counts().items() if count < MIN_DISCRIMINATING}
        if not few:
            return ""
        told = ", ".join(f"{count} reject {answer.replace('_', ' ')}" for answer, count in few.items())
        return (
            f"the judged cases prove too little: {told}; a pass needs {MIN_DISCRIMINATING} of each at shapes of the "
            "task's kind"
        )

    def to_dict(self) -> dict[str, Any]:
        """{"minimum", "rejecting": cases by answer, "cases": families by workload}, for the verdict's checks.

        Families are in the oracle's order, whatever ran first, and then those that belong to no family.
        """
        cases: dict[str, list[str]] = {}
        for name, workload in self._at.items():
            cases.setdefault(workload, []).append(name.removeprefix(f"{workload}/"))
        for workload, found in cases.items():
            known = {family: number for number, family in enumerate(self._oracle.families(workload))}
            found.sort(key=lambda family: known.get(family, len(known)))
        return {"minimum": MIN_DISCRIMINATING, "rejecting": dict(self.counts()), "cases": cases}
