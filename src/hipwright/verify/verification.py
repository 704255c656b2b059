"""The part of one program's verification that all targets share: which cases run, and the evidence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, product, takewhile
from typing import Any, Literal, Protocol

from msgspec.structs import replace

from hipwright.errors import GuardFailed
from hipwright.program import Parsed
from hipwright.records import Program, Verdict, Workload
from hipwright.tensors import tensor_leaves
from hipwright.verify.admitted.stage import AdmittedStage
from hipwright.verify.candidate import POISON_A, CallReply, Rejected, judge, judge_outputs, refusal_verdict
from hipwright.verify.evidence import JudgedEvidence
from hipwright.verify.inputs import LAYOUTS, MIXED_AXES, SPECIAL
from hipwright.verify.oracle import LAST_FAMILIES, MUTATED, TRIALS, Oracle, PlannedWorkload, VerificationCase
from hipwright.verify.reply import forged_reply
from hipwright.verify.sequences.call_sequence import SequencedCall

LARGE_ELEMENTS = 1 << 16  # a main workload with more runs only the families of `LARGE_WORKLOAD_FAMILIES`
LARGE_WORKLOAD_FAMILIES = ("given", "normal", "shifted", "outliers", "zeros90", "strided", *TRIALS, *SPECIAL)
OWN_FAMILIES = (*MIXED_AXES, "exact", *SPECIAL, "masks_off")
"""The families that run at the task's own shapes beside the first: one run of a mixed family shows there what each
adversarial one would, so that a program cannot take another path at the given size."""
LONG_RUNS = "a case takes seconds at any shape that could be had (large parameters or outputs): few families are drawn"
FEWER_FAMILIES = f"inputs of more than {LARGE_ELEMENTS} elements are drawn from fewer families"
FAST_GATE_FAMILIES = ("outliers", "shifted", "mantissa", "strided", "tiny", "large", *SPECIAL[:3])
"""The families of the fast gate beside given and normal; each finds faults that no other does."""
FAST_GATE_ELEMENTS = 1 << 18  # the largest of the task's own inputs that the fast gate runs
UNCLAIMED = "unclaimed"  # a key of the evidence of a program whose guards refused every shape that was run


Gate = Literal["full", "fast"]
"""Which stages a candidate must pass (docs/score.md)."""


class CandidateRunner(Protocol):
    """A session of one build: `candidate.CandidateSession` or `gpu.loaded.LoadedProgram`."""

    def run(self, case: VerificationCase, **header: Any) -> CallReply:
        """One call. Raises GuardFailed, Rejected or infrastructure errors."""


@dataclass(kw_only=True)
class Verification:
    """Cases and evidence of one verification.

    main: the workload that all families run on; worst: the largest error over its tolerance; same_size: the shapes that
    keep the same size as `main` does; admitted: the comparisons of sizes in the program.
    """

    oracle: Oracle
    worst: float | None = None
    evidence: JudgedEvidence = field(init=False)
    skipped: dict[str, str] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    main: PlannedWorkload | None = None
    same_size: tuple[PlannedWorkload, ...] = ()
    admitted: AdmittedStage | None = None

    def __post_init__(self) -> None:
        self.evidence = JudgedEvidence(self.oracle)

    def first_family(self, workload: str) -> str:
        """The family that every workload has."""
        return self.oracle.families(workload)[0]

    def main_case(self, family: str) -> VerificationCase:
        """A case of the main workload; the first family's where this one does not apply."""
        assert self.main is not None
        name = self.main.workload.name
        known = self.oracle.families(name)
        if family not in known and family != MUTATED:
            family = known[0]
        case = self.oracle.case(name, family)
        return case if not case.rejected or family == MUTATED else self.oracle.case(name, known[0])

    # ---------------------------------------------------------------- what to run

    def candidates(self) -> Iterator[PlannedWorkload]:
        """The workloads that may become `main`, the smallest first; `main` alone once it is known.

        The planned ones come first, then one for each size of the task's own that is kept, then those of `last_resort`.
        Shapes that prove nothing, because another size of theirs is 1, are the very last.
        """
        if self.main:
            yield self.main
            return
        roles = {"families": 0, "unseen": 1, "full": 2}
        yield from sorted(self.oracle.planned(), key=lambda planned: roles[planned.role])
        thin: list[PlannedWorkload] = []
        for held in takewhile(lambda held: held is not None, map(self.oracle.held, count())):
            fit = [one for one in held or () if self.oracle.of_kind(one.workload.name)]
            self.same_size = tuple(one for one in held or () if one not in fit[:1])
            thin += [] if fit else (held or ())[:1]
            yield from fit[:1]
        self.same_size = ()
        yield from self.last_resort()
        yield from thin

    def last_resort(self) -> Iterator[PlannedWorkload]:
        """The task's own shapes where a target judges at others as a rule; on a GPU none."""
        yield from ()

    def stage(self, parsed: Parsed | None, program: Program) -> AdmittedStage | None:
        """What the program's comparisons of sizes ask for; None for a program without a plan."""
        if self.admitted is None and parsed is not None and not self.oracle.kernelbench:
            self.admitted = AdmittedStage(parsed, program.knobs, self.oracle)
        return self.admitted

    def declines(self, planned: PlannedWorkload, parsed: Parsed | None, program: Program) -> bool:
        """Whether a guard refuses a derived workload, by the plan's text: no case is made for it."""
        stage = self.stage(parsed, program) if planned.workload.origin == "derived" else None
        if stage is None or not (why := stage.refusal(planned.workload)):
            return False
        self.unclaimed(planned, GuardFailed(why))
        return True

    def unclaimed(self, planned: PlannedWorkload, error: GuardFailed) -> None:
        """Records that a guard refused a workload. Raises Rejected for one of the task's own."""
        name = planned.workload.name
        if planned.workload.origin != "derived":
            raise Rejected(refusal_verdict(error, name)) from error
        self.skipped[name] = f"the program does not claim this shape: {error.message}"

    def claims_nothing(self) -> Rejected:
        """The rejection of a program whose guards refused every workload."""
        last = list(self.skipped.values())[-1]
        message = f"the program claims none of the shapes that can be run here: {last}"
        return Rejected(Verdict(status="unscorable", fault="task", message=message, evidence={UNCLAIMED: True}))

    def families_of_main(self) -> list[str]:
        """The families that run on the main workload; a few of them where it is large."""
        assert self.main is not None
        name = self.main.workload.name
        known = self.oracle.families(name)
        kept: tuple[str, ...] = (*LARGE_WORKLOAD_FAMILIES, *OWN_FAMILIES, *LAYOUTS)
        why = FEWER_FAMILIES
        if self.oracle.takes_long(name):
            kept, why = LAST_FAMILIES, LONG_RUNS
        elif elements(self.main_case("given")) <= LARGE_ELEMENTS:
            return [f for f in known if f not in MIXED_AXES]
        wanted = [f for f in known if f in kept]
        left = [f for f in known if f not in wanted and f not in MIXED_AXES]
        self.skipped |= {f"{name}/{family}": why for family in left}
        return wanted

    def family_cases(self) -> list[VerificationCase]:
        """Their cases."""
        assert self.main is not None
        return [self.oracle.case(self.main.workload.name, family) for family in self.families_of_main()]

    def own_cases(self) -> list[VerificationCase]:
        """Cases of the task's own shapes where `main` is another: the first family, then the adversarial ones."""
        assert self.main is not None
        found = []
        for planned in self.oracle.planned():
            name = planned.workload.name
            if planned.role == "full" and name != self.main.workload.name:
                known = self.oracle.families(name)
                found += [self.oracle.case(name, f) for f in known[:1] + tuple(f for f in OWN_FAMILIES if f in known)]
        return found

    def unseen_cases(self) -> list[VerificationCase]:
        """Cases of derived shapes that the program cannot have been written for, each with three families.

        The third has all magnitudes: the code for an end of a row or of a buffer may run at these shapes alone.
        """
        return list(dict.fromkeys(self._unseen(*pair) for pair in self.unseen_pairs()))

    def unseen_pairs(self) -> list[tuple[PlannedWorkload, str]]:
        """Their shapes and families."""
        assert self.main is not None
        few = self.oracle.takes_long(self.main.workload.name)
        return list(product(self._unseen_shapes(), ("scales",) if few else ("normal", "given", "scales")))

    def _unseen_shapes(self) -> list[PlannedWorkload]:
        assert self.main is not None
        known = (self.main.workload.name, *self.skipped)
        planned = (*self.oracle.planned(), *self.same_size)
        return [p for p in planned if p.role == "unseen" and p.workload.name not in known]

    def _unseen(self, planned: PlannedWorkload, family: str) -> VerificationCase:
        families = self.oracle.families(planned.workload.name)
        return self.oracle.case(planned.workload.name, family if family in families else families[0])

    def fast_gate_cases(self) -> list[VerificationCase]:
        """The cases of the fast gate: few families, every unseen shape once, the task's own shapes where small."""
        assert self.main is not None
        name = self.main.workload.name
        found = [
            self.oracle.case(name, f) for f in self.oracle.families(name) if f in (*FAST_GATE_FAMILIES, *TRIALS[1:])
        ]
        found += [self._unseen(planned, "normal") for planned in self._unseen_shapes()]
        for planned in self.oracle.planned():
            if planned.role == "full" and planned.workload.name != name:
                case = self.oracle.case(planned.workload.name, self.first_family(planned.workload.name))
                if elements(case) <= FAST_GATE_ELEMENTS:
                    found.append(case)
        return found

    def admitted_cases(
        self,
        parsed: Parsed | None,
        program: Program,
        *,
        affordable: Callable[[Workload], bool] = lambda _: True,
        known: Sequence[VerificationCase] = (),
    ) -> list[VerificationCase]:
        """Cases that the program's own comparisons of sizes ask for; none for a program without a plan.

        affordable: whether a workload can be run in time. known: cases that run anyway.
        """
        stage = self.stage(parsed, program)
        if stage is None:
            return []
        assert self.main is not None
        full = self.checks["gate"] == "full"
        found = stage.cases(self.main, self.skipped, affordable, own_families=full)
        names = {case.name for case in known}
        return [case for case in found if case.name not in names]

    # ---------------------------------------------------------------- what came of it

    def attempt(self, session: CandidateRunner, case: VerificationCase, **settings: Any) -> bool:
        """Runs and judges one case; False where it is skipped. settings: of `WatchedCandidate.run`."""
        if not self.usable(case):
            return False
        try:
            answer = session.run(case, **settings)
        except GuardFailed as error:
            self.note_declined(case, error)
            return False
        try:
            self.judge(case, answer, poison=settings.get("poison", POISON_A))
        except Rejected as rejected:
            raise self._explained(session, case, settings, rejected) from None
        self.note_launches(case, answer)
        return True

    def note_launches(self, case: VerificationCase, answer: CallReply) -> None:
        """Records what a case launched, where a target wants to know."""

    def _explained(
        self, session: CandidateRunner, case: VerificationCase, settings: Mapping[str, Any], rejected: Rejected
    ) -> Rejected:
        """A rejection that also says whether the memory of an earlier call is to blame."""
        if rejected.verdict.status != "wrong_value" or "memory" not in settings:
            return rejected
        try:
            judge(case, session.run(case))
        except (Rejected, GuardFailed):
            return rejected
        note = "what an earlier call left in its memory or LDS changes the result (on fresh memory it is right): "
        return Rejected(replace(rejected.verdict, message=note + rejected.verdict.message))

    def usable(self, case: VerificationCase) -> bool:
        """Whether a case can be judged; one that cannot, or that proves nothing, is listed as skipped."""
        why = case.rejected or case.degenerate
        if why and not (case.family == "exact" and case.rejected):  # nearly every reference with weights rounds
            self.skipped[case.name] = why
        return not case.rejected

    def note_declined(self, case: VerificationCase, error: GuardFailed) -> None:
        """Records that a guard refused a case. Raises Rejected for the task's own inputs."""
        if case.family in ("given", *TRIALS) and self.is_given(case.workload):
            raise Rejected(refusal_verdict(error, case.name)) from error
        self.skipped[case.name] = f"the program does not claim this: {error.message}"

    def is_given(self, workload: str) -> bool:
        """Whether the task itself has this workload."""
        return any(p.workload.name == workload and p.workload.origin != "derived" for p in self.oracle.planned())

    def judge(self, case: VerificationCase, answer: CallReply, prefix: str = "", poison: int = POISON_A) -> None:
        """Raises Rejected unless the reply is correct; the reply to a case that counts becomes evidence."""
        found = judge(case, answer, prefix, poison)
        if case.expected.reference_dtype == "native":
            self.checks["reference_dtype"] = "native: an operator has no float64 form, so c is twice as large"
        if case.counts:
            self.evidence.add(case)
            self.worst = max(self.worst or 0.0, found.worst_error)
            row = self.checks.setdefault("errors", {}).setdefault(case.workload, {})  # the report's table
            row[case.family] = max(row.get(case.family, 0.0), round(found.worst_error, 4))

    def judge_sequence(
        self, steps: Sequence[SequencedCall], outcomes: Iterable[CallReply | GuardFailed | Verdict]
    ) -> None:
        """Judges the replies to a sequence, and the first call's outputs after the last one."""
        first, number = steps[0].case, -1
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, Verdict):
                raise Rejected(outcome)
            if isinstance(outcome, GuardFailed):
                return
            if number < len(steps):
                self.judge(steps[number].case, outcome, steps[number].note)
            elif not first.expected.aliases:
                judge_outputs(first, outcome.tree["outputs"], "an earlier call's result changed with the next call: ")
        if number != len(steps):
            raise Rejected(forged_reply(f"the worker replies to {number} of {len(steps)} calls in a row"))
        self.checks["second_call"] = "pass"
        self.checks["calls_on_one_state"] = len(steps)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note the seconds of a stage, without those spent on making its cases."""
        start, prepared = time.perf_counter(), self.oracle.seconds
        try:
            yield
        finally:
            spent = time.perf_counter() - start - (self.oracle.seconds - prepared)
            self.checks.setdefault("seconds", {})[stage] = round(spent, 4)

    def verdict(self, verdict: Verdict) -> Verdict:
        """The verdict with the checks, the workloads it rests on, and what was skipped."""
        checks = {**self.checks, "shapes": self._shapes(), "evidence": self.evidence.to_dict()}
        if verdict.passed and self.admitted is not None and (left := self.admitted.unjudged(self.evidence.workloads())):
            checks["unjudged"] = left
        if verdict.passed and (why := self.evidence.lacking()):
            verdict = Verdict(status="degenerate", fault="task", message=why)
        return Verdict(
            status=verdict.status,
            fault=verdict.fault,
            stage=verdict.stage,
            family=verdict.family,
            workload=verdict.workload,
            worst_error=self.worst if verdict.passed else verdict.worst_error,
            message=verdict.message,
            evidence=verdict.evidence,
            workloads=self.evidence.workloads(),
            skipped=self.skipped,
            checks=checks,
        )

    def _shapes(self) -> dict[str, list[str]]:
        """The input shapes of the workloads that the verdict rests on."""
        specs = {name: self.oracle.handle.workload(name).specs for name in self.evidence.workloads()}
        return {name: [f"{spec.dtype}{list(spec.shape)}" for spec in held] for name, held in specs.items()}


def elements(case: VerificationCase) -> int:
    """The elements of a case's inputs."""
    return sum(t.numel for t in tensor_leaves(case.inputs))
