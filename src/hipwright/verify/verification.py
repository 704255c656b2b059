"""What a verification of one program has found so far: the parts that are the same for every target."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import numpy as np

from hipwright.errors import GuardFailed
from hipwright.records import Verdict
from hipwright.tensors import HostTensor, tensor_leaves
from hipwright.verify.candidate import POISON_A, CallReply, Rejected, judge, launches, where_from
from hipwright.verify.oracle import MUTATED, TRIALS, Oracle, Planned, VerificationCase

MANY_ELEMENTS = 1 << 16  # a main workload above this runs the short list of families
SHORT_LIST = ("given", "normal", "shifted", "outliers", "zeros90", "strided", *TRIALS)
FAST_LIST = ("outliers", "shifted", "mantissa", "strided", "tiny", "large")
"""The families of the fast gate beside given and normal: each catches what no other does."""
QUICK_ELEMENTS = 1 << 18  # of inputs of the task's own that the fast gate still runs
UNCLAIMED = "unclaimed"
"""In the evidence of a verdict on a program whose guards refused every shape that was run."""


class Runner(Protocol):
    """A session of one build: `candidate.Candidate`, `verify.gpu.loaded.Loaded`."""

    def run(self, case: VerificationCase, **header: Any) -> CallReply:
        """One call. Raises GuardFailed, Rejected, or the infrastructure's own errors."""


@dataclass(kw_only=True)
class Verification:
    """Evidence for a verdict. main: the workload that all families run on; worst: largest error over its tolerance."""

    oracle: Oracle
    worst: float | None = None
    evidence: dict[str, None] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    checks: dict[str, Any] = field(default_factory=dict)
    main: Planned | None = None
    beside: tuple[Planned, ...] = ()  # shapes that keep the same size as `main` does

    def first_family(self, workload: str) -> str:
        """The family that any workload has."""
        return self.oracle.families(workload)[0]

    def main_case(self, family: str) -> VerificationCase:
        """A case of the main workload; the first family stands in where one does not apply."""
        assert self.main is not None
        name = self.main.workload.name
        known = self.oracle.families(name)
        if family not in known and family != MUTATED:
            family = known[0]
        case = self.oracle.case(name, family)
        return case if not case.rejected or family == MUTATED else self.oracle.case(name, known[0])

    # ---------------------------------------------------------------- what to run

    def candidates(self) -> Iterator[Planned]:
        """The workloads that may become `main`, the smallest first; `main` alone once it is known.

        After those that are planned, the first of each part that keeps a size of the task's own.
        """
        if self.main:
            yield self.main
            return
        roles = {"families": 0, "unseen": 1, "full": 2}
        yield from sorted(self.oracle.planned(), key=lambda planned: roles[planned.role])
        for part in count():
            held = self.oracle.held(part)
            if held is None:
                return
            self.beside = held[1:]
            yield from held[:1]

    def unclaimed(self, planned: Planned, error: GuardFailed) -> None:
        """A guard refused a workload; it may not refuse the task's own."""
        name = planned.workload.name
        if planned.workload.origin != "derived":
            raise Rejected(refuses(error, name)) from error
        self.skipped[name] = f"the program does not claim this shape: {error.message}"

    def nothing_claimed(self) -> Rejected:
        """The program's guards refused everything."""
        last = list(self.skipped.values())[-1]
        message = f"the program claims none of the shapes that can be run here: {last}"
        return Rejected(Verdict(status="unscorable", fault="task", message=message, evidence={UNCLAIMED: True}))

    def family_cases(self) -> list[VerificationCase]:
        """Every family on the main workload; the short list where that is large."""
        assert self.main is not None
        name = self.main.workload.name
        large = elements(self.main_case("given")) > MANY_ELEMENTS
        return [self.oracle.case(name, f) for f in self.oracle.families(name) if not large or f in SHORT_LIST]

    def unseen_cases(self) -> list[VerificationCase]:
        """Shapes that the program could not have been written for, each with two families."""
        return [self._unseen(planned, family) for planned in self._unseen_shapes() for family in ("normal", "given")]

    def _unseen_shapes(self) -> list[Planned]:
        assert self.main is not None
        known = (self.main.workload.name, *self.skipped)
        planned = (*self.oracle.planned(), *self.beside)
        return [p for p in planned if p.role == "unseen" and p.workload.name not in known]

    def _unseen(self, planned: Planned, family: str) -> VerificationCase:
        families = self.oracle.families(planned.workload.name)
        return self.oracle.case(planned.workload.name, family if family in families else families[0])

    def quick_cases(self) -> list[VerificationCase]:
        """The fast gate's: few families, every unseen shape once, the task's own where they are small."""
        assert self.main is not None
        name = self.main.workload.name
        found = [self.oracle.case(name, f) for f in self.oracle.families(name) if f in (*FAST_LIST, *TRIALS[1:])]
        found += [self._unseen(planned, "normal") for planned in self._unseen_shapes()]
        for planned in self.oracle.planned():
            if planned.role == "full" and planned.workload.name != name:
                case = self.oracle.case(planned.workload.name, self.first_family(planned.workload.name))
                if elements(case) <= QUICK_ELEMENTS:
                    found.append(case)
        return found

    # ---------------------------------------------------------------- what came of it

    def attempt(self, session: Runner, case: VerificationCase) -> bool:
        """Run and judge one case; False when it is skipped."""
        if not self.usable(case):
            return False
        try:
            answer = session.run(case)
        except GuardFailed as error:
            self.declined(case, error)
            return False
        self.judge(case, answer)
        return True

    def usable(self, case: VerificationCase) -> bool:
        """Whether it can be judged; what cannot, or proves nothing, is listed as skipped."""
        if why := case.rejected or case.degenerate:
            self.skipped[case.name] = why
        return not case.rejected

    def declined(self, case: VerificationCase, error: GuardFailed) -> None:
        """A guard refused a case; it may not refuse the task's own inputs."""
        if case.family in ("given", *TRIALS) and self.own(case.workload):
            raise Rejected(refuses(error, case.name)) from error
        self.skipped[case.name] = f"the program does not claim this: {error.message}"

    def own(self, workload: str) -> bool:
        """Whether the task itself has this workload."""
        return any(p.workload.name == workload and p.workload.origin != "derived" for p in self.oracle.planned())

    def judge(self, case: VerificationCase, answer: CallReply, prefix: str = "", poison: int = POISON_A) -> None:
        """Raise Rejected unless the answer is right; a right one to a case that counts is evidence."""
        found = judge(case, answer, prefix, poison)
        if case.expected.reference_dtype == "native":
            self.checks["reference_dtype"] = "native: an operator has no float64 form, so c is twice as large"
        if case.counts:
            self.evidence[case.workload] = None
            self.worst = max(self.worst or 0.0, found.worst_error)
            row = self.checks.setdefault("errors", {}).setdefault(case.workload, {})  # the report's table
            row[case.family] = max(row.get(case.family, 0.0), round(found.worst_error, 4))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note the seconds of a stage, without those that made its cases."""
        start, prepared = time.perf_counter(), self.oracle.seconds
        try:
            yield
        finally:
            spent = time.perf_counter() - start - (self.oracle.seconds - prepared)
            self.checks.setdefault("seconds", {})[stage] = round(spent, 4)

    def verdict(self, verdict: Verdict) -> Verdict:
        """With what was checked, on which workloads, and what was left out."""
        checks = {**self.checks, "shapes": self._shapes()}
        return Verdict(
            status=verdict.status,
            fault=verdict.fault,
            stage=verdict.stage,
            family=verdict.family,
            workload=verdict.workload,
            worst_error=self.worst if verdict.passed else verdict.worst_error,
            message=verdict.message,
            evidence=verdict.evidence,
            workloads=tuple(self.evidence),
            skipped=self.skipped,
            checks=checks,
        )

    def _shapes(self) -> dict[str, list[str]]:
        """The input shapes of the workloads that stood as evidence."""
        first = {name: self.oracle.case(name, self.first_family(name)).inputs for name in self.evidence}
        return {name: [f"{t.dtype}{list(t.shape)}" for t in tensor_leaves(inputs)] for name, inputs in first.items()}


def elements(case: VerificationCase) -> int:
    """Of its inputs."""
    return sum(t.numel for t in tensor_leaves(case.inputs))


def refuses(error: GuardFailed, workload: str) -> Verdict:
    """The verdict on an assert that is false for the task's own inputs."""
    verdict = error.verdict()
    return Verdict(
        status="launch_error",
        fault="candidate",
        stage="launch",
        workload=workload,
        message=f"an assert refuses the task's own inputs ({workload}): {verdict.message}",
        evidence=verdict.evidence,
    )


def unstable(case: VerificationCase, place: tuple[int, tuple[int, ...]], order: str, first: CallReply) -> Verdict:
    """The verdict on results that are not the same twice."""
    leaf, index = place
    return Verdict(
        status="nondeterministic",
        fault="candidate",
        family=case.family,
        workload=case.workload,
        message=f"output {leaf} at {list(index)} depends on the order in which threads and blocks run (forward against "
        f"{order}) or on uninitialised memory, and the kernels declare no float atomics (on {case.name})",
        evidence={**where_from(case), "output": leaf, "index": list(index), "launches": launches(first.stats)},
    )


def first_difference(a: CallReply, b: CallReply) -> tuple[int, tuple[int, ...]] | None:
    """(leaf, index) of the first bit that differs; NaN equals NaN."""
    pairs = zip(tensor_leaves(a.tree), tensor_leaves(b.tree), strict=False)
    for leaf, (x, y) in enumerate(pairs):
        if (x.dtype, x.shape) != (y.dtype, y.shape):  # both were judged right: a worker that reorders its reply
            return leaf, ()
        found = different(x, y)
        if found.any():
            return leaf, tuple(int(i) for i in np.unravel_index(int(np.argmax(found)), found.shape))
    return None


def different(x: HostTensor, y: HostTensor) -> Any:
    """Where two tensors of one dtype and shape differ in a bit; NaN equals NaN."""
    found = x.bits() != y.bits() if x.dtype == "bfloat16" else _raw_differ(x, y)
    if x.is_float and found.any():
        found &= ~(np.isnan(x.to_f64()) & np.isnan(y.to_f64()))
    return found


def _raw_differ(x: HostTensor, y: HostTensor) -> Any:
    width = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.bits().dtype.itemsize]
    return np.ascontiguousarray(x.bits()).view(width) != np.ascontiguousarray(y.bits()).view(width)
