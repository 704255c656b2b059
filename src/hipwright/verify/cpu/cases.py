"""The cases of one verification on the `cpu` target: which run, and when they are made."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path

from msgspec.structs import replace

from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict, Workload
from hipwright.sandbox import Limits, Zygote
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu.sides import TargetSide
from hipwright.verify.admitted.stage import AdmittedStage
from hipwright.verify.candidate import LAUNCH_LIMIT_S, CallReply, CandidateSession
from hipwright.verify.case_draws import TRIALS, VerificationCase
from hipwright.verify.cpu.ahead import CasesAhead
from hipwright.verify.cpu.case_budget import LEAST_FAMILIES, CaseBudget, expectation_seconds
from hipwright.verify.cpu.predicted import CallSeconds
from hipwright.verify.cpu.skipped import too_long
from hipwright.verify.cpu.unchecked import UncheckedKernels
from hipwright.verify.oracle import LAST_FAMILIES, PlannedWorkload
from hipwright.verify.sequences.call_sequence import SequencedCall
from hipwright.verify.verification import FAST_GATE_FAMILIES, OWN_FAMILIES, Verification, elements

FULL_SECONDS = 4.0  # predicted kernel seconds above which the task's own shapes are skipped
ADMITTED_SECONDS = 0.3  # predicted kernel seconds above which a chosen shape is not run
ADMITTED_CASES = 2  # of a chosen shape
CHECKED_OPERATIONS = 2e7  # of products a second in a checked build, where each access is
MOST_LIMITS = 6  # times the usual limit that a launch may have for them
FEW_IN_A_ROW = 3  # on the first state, another one, and the first again
FEW_CALLS_S = 8.0  # predicted kernel seconds of a call from which few are made
LEFT_OUT = "two launch orders instead of three, three calls in a row instead of five, no family again"
NEXT_FAMILIES = ("offset", "normal")
"""What runs on the main workload after its first family."""
LONG_CASE_S = 1.0  # seconds of a case from which the next ones are made while the first call runs
CHECKED_SLOWDOWN = 10  # of the checked build, which alone runs in the fast gate

Builds = Mapping[tuple[int, bool], Build]


@dataclass(kw_only=True)
class CpuCases(Verification):
    """What one program is run on, and sessions to run it in. executor: of a simulated target, what runs the builds.

    ahead: makes cases while others run.
    """

    parsed: Parsed
    program: Program
    builds: Builds
    zygote: Zygote
    limits: Limits
    cache: BuildCache
    waves: tuple[int, ...]
    executor: Path | None = None
    sides: Mapping[TargetSide, Build] = field(default_factory=dict)
    seconds: CallSeconds = field(default_factory=CallSeconds)
    unchecked: UncheckedKernels = field(default_factory=UncheckedKernels)
    budget: CaseBudget = field(default_factory=CaseBudget)
    ahead: CasesAhead = field(init=False)
    unseen_ahead: Future[list[VerificationCase]] = field(init=False)
    families_ahead: Iterator[VerificationCase] = field(init=False)

    # ---------------------------------------------------------------- what runs

    def candidates(self) -> Iterator[PlannedWorkload]:
        """As on every target; of a slow task the own shapes come before larger derived ones, which cost more."""
        for planned in super().candidates():
            if self.main is None and self.oracle.handle.slow and planned.workload.origin == "derived":
                yield from (own for own in self.last_resort() if _size(own.workload) < _size(planned.workload))
            yield planned

    def families_of_main(self) -> list[str]:
        """As on every target, as far as the budget goes: first those that find faults which no other does."""
        assert self.main is not None
        known, name = super().families_of_main(), self.main.workload.name
        least = (*known, *TRIALS) if self.oracle.kernelbench else (known[0], *LEAST_FAMILIES)
        order = dict.fromkeys((*(one for one in FAST_GATE_FAMILIES if one in known), *known))
        kept = {one for one in order if one in least or self._allowed(name, one)}
        return [family for family in known if family in kept]

    def unseen_pairs(self) -> list[tuple[PlannedWorkload, str]]:
        """As on every target, as far as the budget goes: first the family of all magnitudes, at the smallest shape of
        the task's kind.
        """
        found = super().unseen_pairs()

        def turn(pair: tuple[PlannedWorkload, str]) -> tuple[bool, bool, int]:
            workload = pair[0].workload
            return pair[1] != "scales", not self.oracle.of_kind(workload.name), _size(workload)

        order = sorted(found, key=turn)
        kept = [pair for pair in order if pair is order[0] or self._allowed(pair[0].workload.name, pair[1])]
        return [pair for pair in found if pair in kept]

    def _unseen_shapes(self) -> list[PlannedWorkload]:
        """Those that no guard refuses, as far as the plan's text tells: no expectation is made for the others."""
        return [one for one in super()._unseen_shapes() if not self.declines(one, self.parsed, self.program)]

    def _allowed(self, workload: str, family: str) -> bool:
        """Whether the budget allows a case; one that it does not is listed as skipped."""
        name = f"{workload}/{family}"
        if not (allowed := self.budget.allows(name, self.case_seconds(workload))):
            self.skipped[name] = self.budget.why(name)
        return allowed

    def case_seconds(self, workload: str) -> float:
        """Processor seconds of one case: its expectation, and its kernels without checks."""
        handle = self.oracle.handle
        given, held = handle.task.workloads[0], _size(handle.workload(workload))
        operations = handle.operations(workload) or handle.operations(given.name) * held / max(1, _size(given))
        return expectation_seconds(handle.parameter_bytes, operations) + self.seconds.of(held)

    def own_cases(self, so_far: CallSeconds | None = None) -> list[VerificationCase]:
        """As on every target, but of shapes that take too long the first family's alone: so do expectations.

        so_far: the counts to go by, where the cases are only made.
        """
        assert self.main is not None
        main, found = self.main.workload.name, list[VerificationCase]()
        for name in (p.workload.name for p in self.oracle.planned() if p.role == "full" and p.workload.name != main):
            known = self.oracle.families(name)
            others = [family for family in OWN_FAMILIES if family in known[1:]]
            found.append(self.oracle.case(name, known[0]))
            if (expected := self.predicted(found[-1], so_far)) > FULL_SECONDS:
                if so_far is None:
                    self.skipped |= {f"{name}/{family}": too_long(f"about {expected:.1f}") for family in others}
                continue
            kept = [family for family in others if family is others[0] or self._allowed(name, family)]
            found += [self.oracle.case(name, family) for family in kept]
        return found

    def predicted(self, case: VerificationCase, so_far: CallSeconds | None = None) -> float:
        """CPU seconds that the case's kernels take without checks."""
        return (so_far or self.seconds).of(elements(case), self.oracle.handle.operations(case.workload))

    def affordable(self, workload: Workload, so_far: CallSeconds | None = None) -> bool:
        """Whether the counts so far predict that a call takes little time. so_far: the counts to go by."""
        slower = CHECKED_SLOWDOWN if self.checks["gate"] == "fast" else 1
        held = sum(prod(spec.shape) for spec in workload.specs)
        return slower * (so_far or self.seconds).of(held) <= ADMITTED_SECONDS

    def stage(self, parsed: Parsed | None, program: Program) -> AdmittedStage | None:
        """As on every target; what is judged for its sides alone is within the budget."""
        if (found := super().stage(parsed, program)) is not None:
            found.allowed = lambda one: self.budget.allows(one.name, ADMITTED_CASES * self.case_seconds(one.name))
        return found

    def note_launches(self, case: VerificationCase, answer: CallReply) -> None:
        """Keeps what ran with checks and without, and what it took."""
        self.unchecked.ran(case, answer)
        self.seconds.note(elements(case), answer.stats)

    def note_repeats(self, answer: CallReply) -> None:
        """Records how many launches of a checked call ran without checks, as they repeat others."""
        if repeats := sum(bool(entry.get("repeat")) for entry in answer.stats):
            self.checks["unchecked_repeats"] = f"{repeats} of {len(answer.stats)} launches"

    def verdict(self, verdict: Verdict) -> Verdict:
        """As on every target, with what the budget left out."""
        if left := self.budget.to_dict():
            self.checks["case_budget"] = left
        return super().verdict(verdict)

    @cached_property
    def few_calls(self) -> bool:
        """Whether calls take so long that those which repeat what others show are left out."""
        expected = self.predicted(self.main_case("given"))
        if few := expected >= FEW_CALLS_S and not self.oracle.kernelbench:
            self.checks["few_calls"] = f"a call takes about {expected:.0f} s of the cpu target's processor: {LEFT_OUT}"
        return few

    def calls_in_a_row(self) -> Sequence[SequencedCall]:
        """The calls on one state."""
        assert self.main is not None
        steps = self.oracle.sequence(self.main.workload.name)
        return steps[:FEW_IN_A_ROW] if self.few_calls else steps

    # ---------------------------------------------------------------- made ahead

    def next_cases_ahead(self, first: VerificationCase) -> None:
        """Makes the cases after a workload's first one, where that took long, before it is known that the workload
        becomes `main`: nothing else is made meanwhile.
        """
        if first.seconds >= LONG_CASE_S:
            known = self.oracle.families(first.workload)
            later = LAST_FAMILIES if self.checks["gate"] == "full" else ()
            self.ahead.cases(first.workload, [f for f in dict.fromkeys((*NEXT_FAMILIES, *later)) if f in known])

    def begin_making(self) -> None:
        """Makes the cases that do not depend on what the candidate does, in the order in which they run."""
        assert self.main is not None
        self.ahead.call(lambda: [self.main_case(family) for family in NEXT_FAMILIES])
        families = self.families_of_main()  # of these first is the budget
        self.unseen_ahead = self.ahead.call(self.unseen_cases)
        self.families_ahead = self.ahead.cases(self.main.workload.name, families)

    def make_rest(self) -> Future[list[VerificationCase]]:
        """Makes the cases that do: shapes that the guards admit, which are returned, own shapes and calls in a row."""
        assert self.main is not None
        so_far, name = copy.deepcopy(self.seconds), self.main.workload.name
        found = self.ahead.call(
            lambda: self.admitted_cases(
                self.parsed, self.program, affordable=lambda workload: self.affordable(workload, so_far)
            )
        )
        self.ahead.call(lambda: self.own_cases(so_far))
        if not self.oracle.kernelbench:
            self.ahead.call(lambda: self.oracle.sequence(name))
        return found

    # ---------------------------------------------------------------- sessions

    def session(
        self, wave: int | None, *, checked: bool, launch_limit_s: float | None = None, build: Build | None = None
    ) -> CandidateSession:
        """A session of one build, with the main cases' state; wave None replaces kernels by no-ops.

        build: another one than that of the wave. Where a launch may take longer than usual, so may the process.
        """
        usual = self._launch_limit()
        launch_limit_s = max(launch_limit_s or LAUNCH_LIMIT_S, usual)
        cpu_s = self.limits.cpu_s * launch_limit_s / LAUNCH_LIMIT_S
        wall_s = self.limits.wall_s * usual / LAUNCH_LIMIT_S  # a launch that hangs ends by its own limit
        so: Path | None = None
        if wave is not None:
            so = self.cache.path((build or self.builds[wave, checked]).blob)
        return CandidateSession(
            self.zygote,
            self.program,
            self.oracle.state,
            so=so,
            repeats=self._for_repeats(wave) if checked and build is None else None,
            executor=self.executor,
            checked=checked,
            wave=wave or 64,
            limits=replace(self.limits, cpu_s=cpu_s, wall_s=wall_s),
            launch_limit_s=launch_limit_s,
            draws=self.oracle.side_effects.draws,
        )

    def _for_repeats(self, wave: int | None) -> Path | None:
        """The build without checks of a wave, on this processor, for launches that repeat checked ones."""
        plain = None if wave is None or self.executor is not None else self.builds.get((wave, False))
        return self.cache.path(plain.blob) if plain is not None and plain.ok else None

    def _launch_limit(self) -> float:
        """Processor seconds of one launch at the planned shapes: more where these leave large products."""
        given = self.oracle.handle.task.workloads[0]
        derived = [p.workload for p in self.oracle.planned() if p.role != "full"]
        share = max(map(_size, derived), default=1) / max(1, _size(given)) if derived else 1.0
        operations = self.oracle.handle.operations(given.name) * share
        return LAUNCH_LIMIT_S + min(operations / CHECKED_OPERATIONS, LAUNCH_LIMIT_S * MOST_LIMITS)


def _size(workload: Workload) -> int:
    return sum(prod(spec.shape) for spec in workload.specs)
