"""The mutation test: whether the verifier notices small mistakes in honest programs.

A mutant that passes is examined. It is equivalent only when its machine code for gfx942 is the same to the bit, or its
outputs are on EQUIVALENCE_TRIALS inputs of all planned shapes; otherwise it survived, which is a hole in the verifier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from hipwright.audit.cases import CorpusCase, select
from hipwright.audit.differential import equivalent
from hipwright.audit.mutants import Mutant, mutants, sample
from hipwright.audit.verifiers import AuditSession
from hipwright.errors import HipwrightError
from hipwright.events import doing
from hipwright.program import parse
from hipwright.records import Program

MIN_KILLED_SHARE = 0.98
MAX_EQUIVALENT_SHARE = 0.15
Fate = Literal["killed", "equivalent", "survived", "stillborn", "void"]


@dataclass(frozen=True)
class MutantResult:
    """The fate of a mutant. why: the verdict that killed it, or what made it equivalent."""

    mutant: Mutant
    fate: Fate
    why: str = ""


@dataclass
class MutationReport:
    """A mutation test. Stillborn mutants (no program, or one that does not compile) are not counted."""

    seed: int
    examined: list[MutantResult] = field(default_factory=list)

    @property
    def counts(self) -> Counter[Fate]:
        """The number of mutants by fate."""
        return Counter(e.fate for e in self.examined)

    @property
    def total(self) -> int:
        """Mutants that are counted."""
        return sum(self.counts[fate] for fate in ("killed", "equivalent", "survived"))

    @property
    def killed_share(self) -> float:
        """The share of killed mutants among those that are not equivalent."""
        real = self.counts["killed"] + self.counts["survived"]
        return self.counts["killed"] / real if real else 0.0

    @property
    def passed(self) -> bool:
        """Whether enough were killed, few enough equivalent, and every verdict given."""
        few = self.counts["equivalent"] <= MAX_EQUIVALENT_SHARE * self.total
        return self.killed_share >= MIN_KILLED_SHARE and few and not self.counts["void"]

    def survivors(self) -> list[Mutant]:
        """Mutants that the verifier accepted."""
        return [e.mutant for e in self.examined if e.fate == "survived"]

    def summary(self) -> str:
        """The report in one line."""
        c = self.counts
        return (
            f"{self.total} mutants (seed {self.seed}): {c['killed']} killed, {c['survived']} survived "
            f"({self.killed_share:.1%} of the non-equivalent killed), {c['equivalent']} equivalent "
            f"({c['equivalent'] / max(self.total, 1):.1%}); {c['stillborn']} did not compile, {c['void']} void"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        by_operator: dict[str, Counter[Fate]] = {}
        for e in self.examined:
            by_operator.setdefault(e.mutant.operator, Counter())[e.fate] += 1
        return {
            "seed": self.seed,
            "total": self.total,
            "counts": dict(self.counts),
            "killed_share": round(self.killed_share, 4),
            "good": self.passed,
            "operators": {kind: dict(counts) for kind, counts in sorted(by_operator.items())},
            "mutants": [{"mutant": e.mutant.description(), "fate": e.fate, "why": e.why[:300]} for e in self.examined],
        }


def run_mutants(
    session: AuditSession,
    count: int,
    seed: int,
    patterns: Sequence[str] = (),
    *,
    workers: int = 2,
    log: Callable[[str], None] = lambda _: None,
) -> MutationReport:
    """Judges `count` mutants of the honest programs (fewer if there are no more), drawn by the seed."""
    cases = {c.name: c for c in select(patterns, form="program", kind="honest")}
    queue = iter(sample([mutants(name, parse(case.text)) for name, case in cases.items()], seed))
    report = MutationReport(seed)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        while report.total < count:
            batch = list(islice(queue, min(count - report.total, 4 * workers)))
            if not batch:
                break
            for examined in pool.map(lambda m: examine_mutant(session, cases[m.program], m), batch):
                report.examined.append(examined)
                doing("judging mutants", report.total, count)
                if examined.fate in ("survived", "void"):
                    log(f"{examined.fate}: {examined.mutant.description()} {examined.why}")
    return report


def examine_mutant(session: AuditSession, case: CorpusCase, mutant: Mutant) -> MutantResult:
    """Verifies one mutant, and checks for equivalence if it passes."""
    evaluator = session.evaluator(case.task_path)
    try:
        found = evaluator.evaluate(Program(text=mutant.text))
        if found.status in ("parse_error", "compile_error"):
            return MutantResult(mutant, "stillborn", found.message)
        if found.status != "pass":
            fate: Fate = "killed" if found.fault == "candidate" else "void"
            return MutantResult(mutant, fate, f"{found.status}: {found.message}")
        if why := equivalent(evaluator, case.text, mutant.text):
            return MutantResult(mutant, "equivalent", why)
    except HipwrightError as error:
        return MutantResult(mutant, "void", error.message)
    return MutantResult(mutant, "survived")
