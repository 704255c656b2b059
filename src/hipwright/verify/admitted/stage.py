"""The cases that a program's own comparisons of sizes ask for, and what remains unjudged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hipwright.program import Parsed
from hipwright.program.lines import with_lines
from hipwright.records import Workload
from hipwright.task.sizes import elements
from hipwright.verify.admitted.choice import TOO_LONG, AdmittedShapes, shapes_of
from hipwright.verify.admitted.narrow import guards
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.oracle import Oracle, PlannedWorkload

_OVERFLOWING = ("outliers", "large")
_CANCELLING = "shifted"
_LARGE = 1 << 17  # elements of a workload that is run with one family alone


class AdmittedStage:
    """Chooses cases for one program. allowed: whether a workload may be judged for its sides of comparisons, which are
    left to guards where it may not.
    """

    def __init__(self, parsed: Parsed, knobs: Mapping[str, int], oracle: Oracle) -> None:
        self.oracle, self.parsed = oracle, parsed
        self.shapes = AdmittedShapes.of(parsed, knobs, oracle)
        self.allowed: Callable[[Workload], bool] = lambda _: True
        self.chosen: list[str] = []  # workloads that take sides of their own

    def cases(
        self,
        main: PlannedWorkload,
        skipped: Iterable[str],
        affordable: Callable[[Workload], bool],
        *,
        own_families: bool,
    ) -> list[VerificationCase]:
        """Cases of workloads that take other sides than `main` does, and of sizes drawn in secret.

        skipped: names of planned workloads that the program declines or that were not run. own_families: whether the
        task's own workloads run with adversarial values anyway. affordable: whether the target can run a workload in
        time.
        """
        if self.shapes is None:
            return []
        known = set(skipped)
        planned = [p.workload for p in self.oracle.planned() if p.workload.name not in known]
        full = {p.workload.name for p in self.oracle.planned() if p.role == "full"}
        others = [one for one in planned if one.name != main.workload.name]
        others = [one for one in others if one.name not in full or affordable(one)]
        others = [one for one in others if self.allowed(one) and self.judges(one)]
        thorough = [one for one in others if own_families and one.name in full]
        plain = [one for one in others if one not in thorough]
        drawn = self.shapes.drawn(main.workload, [*known, *(one.name for one in planned)])
        plain += [one for one in drawn if affordable(one) and self.judges(one)]
        chosen = self.shapes.choose(
            [main.workload, *thorough], plain, self.judges, lambda one: affordable(one) and self.allowed(one)
        )
        self.chosen = [workload.name for workload in chosen]
        found: dict[VerificationCase, None] = {}
        for workload in dict.fromkeys([*drawn, *chosen]):
            if not affordable(workload):
                self.shapes.decline(workload, TOO_LONG)
                continue
            found |= dict.fromkeys(self._adversarial(workload) if workload in chosen else self._one(workload))
        return list(found)

    def refusal(self, workload: Workload) -> str:
        """The guard that declines a workload; "" where none does, as far as the plan's text tells."""
        return "" if self.shapes is None else self.shapes.follow(shapes_of(workload)).refused

    def judges(self, workload: Workload) -> bool:
        """Whether a case of the workload is evidence."""
        return any(case.counts for case in self._adversarial(workload))

    def _adversarial(self, workload: Workload) -> list[VerificationCase]:
        """Values under which an unstable path shows: overflow of exponentials or range, and cancellation."""
        large = self._cases(workload, ("large",))
        found = large if large[0].counts else self._cases(workload, ("outliers",))
        return found if elements(shapes_of(workload)) > _LARGE else [*found, *self._cases(workload, (_CANCELLING,))]

    def _one(self, workload: Workload) -> list[VerificationCase]:
        turn = self.oracle.seed_of("adversarial", workload.name)
        return self._cases(workload, (_OVERFLOWING[turn % len(_OVERFLOWING)],))

    def _cases(self, workload: Workload, names: Iterable[str]) -> list[VerificationCase]:
        known = self.oracle.families(workload.name)
        wanted = [name for name in names if name in known] or list(known[:1])
        return [self.oracle.case(workload.name, name) for name in wanted]

    def unjudged(self, evidence: Iterable[str]) -> list[dict[str, object]]:
        """The sides that the guards admit and no workload of the evidence takes, as a verdict has them.

        Each that the task itself does not take has "guard": [line, assert to put before it] where one excludes it.
        """
        if self.shapes is None:
            return []
        names = set(evidence)
        judged = [self.oracle.handle.workload(name) for name in names]
        own = [one for one in self.oracle.handle.task.workloads if one.origin != "derived"]
        left = self.shapes.unjudged(judged, own)
        kept = [shapes_of(one) for one in dict.fromkeys([*judged, *own]) if not self.shapes.refuses(one)]
        tracer = self.shapes.tracer
        added = guards(self.parsed.text, left, tracer, kept, tracer.of)
        return [{**side.to_dict(), **({"guard": list(added[side])} if side in added else {})} for side in left]


def narrowed(text: str, checks: Iterable[Mapping[str, Any]]) -> str:
    """A program's text with the guards that its verdicts name. checks: of each target's verdict."""
    added: dict[int, dict[str, None]] = {}
    for found in checks:
        for side in found.get("unjudged", ()):
            if "guard" in side:
                line, guard = side["guard"]
                added.setdefault(line, {})[guard] = None
    return with_lines(text, {line: "\n".join(texts) for line, texts in added.items()})
