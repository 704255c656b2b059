"""The cases that a program's own comparisons of sizes ask for, and what remains unjudged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hipwright.program import Parsed
from hipwright.records import Workload
from hipwright.task.sizes import elements
from hipwright.verify.admitted.choice import AdmittedShapes, UnjudgedSide, shapes_of
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.oracle import Oracle, PlannedWorkload

ADVERSARIAL = ("outliers", "shifted", "large")
"""Values under which an unstable path shows: overflow of exponentials, cancellation, range."""
_LARGE = 1 << 17  # elements of a workload that is run with one of them


class AdmittedStage:
    """Chooses cases for one program. affordable: whether the target can run a case's workload in time."""

    def __init__(self, parsed: Parsed, knobs: Mapping[str, int], oracle: Oracle) -> None:
        self.oracle = oracle
        self.shapes = AdmittedShapes.of(parsed, knobs, oracle)

    def cases(
        self, main: PlannedWorkload, skipped: Iterable[str], affordable: Callable[[Workload], bool]
    ) -> list[VerificationCase]:
        """Cases of workloads that take other sides than `main` does, and of sizes drawn in secret.

        skipped: names of planned workloads that the program declines or that were not run.
        """
        if self.shapes is None:
            return []
        known = set(skipped)
        planned = [p.workload for p in self.oracle.planned() if p.workload.name not in known]
        others = [one for one in planned if one.name != main.workload.name]
        full = {p.workload.name for p in self.oracle.planned() if p.role == "full"}
        plain = [one for one in others if one.name not in full or affordable(one)]
        drawn = self.shapes.drawn(main.workload, [*known, *(one.name for one in planned)])
        found = []
        turn = self.oracle.seed_of("adversarial")
        for index, workload in enumerate(drawn):
            found += self._cases(workload, ("normal", ADVERSARIAL[(turn + index) % len(ADVERSARIAL)]))
        for index, (workload, _) in enumerate(self.shapes.choose([main.workload], [*plain, *drawn])):
            large = elements(shapes_of(workload)) > _LARGE
            found += self._cases(workload, (ADVERSARIAL[(turn + index) % len(ADVERSARIAL)],) if large else ADVERSARIAL)
        return [case for case in dict.fromkeys(found) if affordable(self.oracle.handle.workload(case.workload))]

    def _cases(self, workload: Workload, names: Iterable[str]) -> list[VerificationCase]:
        known = self.oracle.families(workload.name)
        wanted = [name for name in names if name in known] or list(known[:1])
        return [self.oracle.case(workload.name, name) for name in wanted]

    def unjudged(self, evidence: Iterable[str]) -> list[UnjudgedSide]:
        """The sides that the guards admit and no workload of the evidence takes."""
        if self.shapes is None:
            return []
        names = set(evidence)
        judged = [self.oracle.handle.workload(name) for name in names]
        own = [one for one in self.oracle.handle.task.workloads if one.origin != "derived"]
        return self.shapes.unjudged(judged, [one for one in own if one.name not in names])
