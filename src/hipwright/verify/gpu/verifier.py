"""Verifies one program on a GPU: the cpu target's stages in as few messages as possible.

1. the main workload: given values, then normal ones three times: other poison each time, once beside other work
2. every input family, unseen shapes, and the task's own shapes where the oracle holds them
3. a second call with new inputs and parameters at the same addresses; the first call's outputs must remain
4. the task's own shapes that only the device can hold, judged there by its reference; for a program that supports
   no others, with another poison and a second call too (behind the fast gate: `verify_timed`)
5. kernels replaced by no-ops: if the outputs are still correct, the program's kernels do none of the work

A GPU reports no race and no read outside a buffer: they show as values that are wrong or that differ between runs, or
not at all. The cpu target reports them (docs/verification.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipwright.errors import CandidateError, DeviceError, GuardFailed
from hipwright.program import Parsed
from hipwright.records import Build, Program, Verdict
from hipwright.tensors import tensor_leaves
from hipwright.verify.atomics import DETERMINISTIC
from hipwright.verify.bit_differences import first_difference, nondeterministic_verdict
from hipwright.verify.candidate import (
    POISON_A,
    POISON_B,
    POISON_C,
    CallReply,
    Rejected,
    judge,
)
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.hosts.device_process import Crowded
from hipwright.verify.gpu.large_shapes import LIBRARY_ORDER, OPEN_ORDER, LargeShapeVerification, TimedInputs
from hipwright.verify.gpu.loaded import LoadedProgram, Outcome
from hipwright.verify.gpu.refusals import REFUSED, asks, refusal
from hipwright.verify.oracle import Oracle
from hipwright.verify.sequences.call_sequence import alternating_memory
from hipwright.verify.verification import Gate

if TYPE_CHECKING:
    from hipwright.verify.gpu.reference import DeviceReference

BATCH_BYTES = 64 << 20  # of inputs in one message
WRITES = (
    "the reference writes to its inputs, and calls on a GPU are not judged with such inputs yet: use the cpu target"
)
# settings of the runs that must agree; a GPU ignores the orders, which only the driver "cpu" can choose
REPEATS: tuple[dict[str, Any], ...] = (
    {"watch": True},  # inputs and parameters are compared after each launch
    {"poison": POISON_B, "noise": True, "order": "shuffle", "seed": 1},
    {"poison": POISON_C, "order": "reverse"},
)

Item = tuple[VerificationCase, Mapping[str, Any]]


def verify_gpu(
    parsed: Parsed | None,
    program: Program,
    build: Build | None,
    oracle: Oracle,
    reference: DeviceReference | None,
    worker: CandidateWorker,
    *,
    gate: Gate = "full",
    load_options: Mapping[str, Any] | None = None,
    asked: Callable[[], DeviceReference] | None = None,
) -> Verdict:
    """Verifies one built program on the worker's device.

    parsed: None for ModelNew files, whose float atomics are unknown. reference: judges what is too large for the
    oracle; without one that is skipped. gate: "fast" runs one family on unseen shapes and no no-ops. load_options: as
    for `CandidateWorker.load`. asked: opens a reference that says which inputs it refuses on the device itself, where
    `reference` is None. Raises infrastructure errors; all else is in the Verdict.
    """
    problem = oracle.status()
    if problem is not None:
        status, why = problem
        return Verdict(status=status, fault="task", stage="lint", message=why)
    run = GpuVerification(
        oracle=oracle,
        parsed=parsed,
        program=program,
        build=build,
        reference=reference,
        worker=worker,
        load_options=load_options,
        asked=asked if reference is None else lambda: reference,
    )
    return run.verdict_of(lambda: run.run_stages(gate))


def verify_timed(
    parsed: Parsed,
    program: Program,
    build: Build,
    oracle: Oracle,
    reference: DeviceReference,
    worker: CandidateWorker,
    timed: TimedInputs,
) -> Verdict:
    """The fast gate's verdict on a program whose guards accept only the task's own large shape.

    One call on the secret inputs of the timing, judged by the reference on the device. Raises infrastructure errors;
    all else is in the Verdict.
    """
    run = GpuVerification(
        oracle=oracle,
        parsed=parsed,
        program=program,
        build=build,
        reference=reference,
        worker=worker,
        load_options=None,
    )
    return run.verdict_of(lambda: run.timed_inputs(timed))


@dataclass(kw_only=True)
class GpuVerification(LargeShapeVerification):
    """The verification of one program on a worker's device. asked: as in `verify_gpu`."""

    asked: Callable[[], DeviceReference] | None = None

    def verdict_of(self, stages: Callable[[], None]) -> Verdict:
        """The verdict of running some stages."""
        try:
            stages()
        except Rejected as rejected:
            return self.verdict(rejected.verdict)
        except CandidateError as error:  # from `load`, whose verdict was checked
            return self.verdict(error.verdict())
        return self.verdict(Verdict(status="pass"))

    def run_stages(self, gate: Gate) -> None:
        """Runs all stages in order."""
        self.skipped |= self.oracle.skipped
        self.checks |= {"device": self.worker.judged_on, "gate": gate}
        with self.timed("load"):
            session = self.loaded(self.build, self.oracle.state)
        with session:
            with self.timed("main workload"):
                claimed = self.main_workload(session, REPEATS if gate == "full" else REPEATS[::2])
            on_device = gate == "full" and self.reference is not None
            if not claimed and not (on_device and self.large_own_workloads()):
                raise self.claims_nothing()
            if claimed:
                with self.timed("families and shapes"):
                    self.cases(session, gate)
            if claimed and not self.oracle.kernelbench:
                with self.timed("second call"):
                    self.second_call(session)
            if on_device:
                assert self.reference is not None
                with self.timed("large"):
                    self.large(session, self.reference)
                taken = {"candidate": self.worker.memory()["own"], "reference": self.reference.taken()}
                self.checks["memory_mb"] = {name: round(nbytes / 1e6, 1) for name, nbytes in taken.items()}
        if gate == "full" and self.program.form == "program":
            with self.timed("no-op"):
                self.noop()

    # ---------------------------------------------------------------- stages

    def main_workload(self, session: LoadedProgram, repeats: Sequence[Mapping[str, Any]]) -> bool:
        """Runs given values and normal ones on the first workload that the program supports; False where it supports
        none.
        """
        for planned in self.candidates():
            if self.declines(planned, self.parsed, self.program):
                continue
            name = planned.workload.name
            self.main = planned
            first: Item = (self.oracle.case(name, self.first_family(name)), {})
            normal = self.main_case("normal")
            answers = session.run_many(
                [first, *((normal, settings) for settings in repeats)], together=self.checks["gate"] == "fast"
            )
            if isinstance(answers[0], GuardFailed):
                self.main = None
                self.unclaimed(planned, answers[0])
                continue
            self.settle(first, answers[0])
            found = [self.settle((normal, settings), a) for settings, a in zip(repeats, answers[1:], strict=False)]
            self.check_repeats(session, normal, [answer for answer in found if answer is not None], repeats)
            return True
        return False

    def check_repeats(
        self,
        session: LoadedProgram,
        case: VerificationCase,
        answers: Sequence[CallReply],
        repeats: Sequence[Mapping[str, Any]],
    ) -> None:
        """Rejects results that depend on the contents of memory or on other work, unless float atomics leave the order
        open. Where library operators may, the deterministic ones decide.
        """
        if len(answers) < 2:
            return
        if self._open_order(answers[0].stats):
            self.checks["repeats"] = OPEN_ORDER
            return
        found = _differing(answers)
        self.checks["repeats"] = "bit-equal" if found is None else LIBRARY_ORDER
        if found is not None and not (self.library_order_open() and self.agree_without(session, case, repeats)):
            number, place = found
            raise Rejected(nondeterministic_verdict(case, place, str(repeats[number].get("order")), answers[0]))

    def agree_without(
        self, session: LoadedProgram, case: VerificationCase, repeats: Sequence[Mapping[str, Any]]
    ) -> bool:
        """Whether the runs that must agree do so where library operators use deterministic algorithms."""
        items: list[Item] = [(case, {**settings, DETERMINISTIC: True}) for settings in repeats]
        answers = session.run_many(items)
        if not all(isinstance(answer, CallReply) for answer in answers):
            return False
        found = [self.settle(item, answer) for item, answer in zip(items, answers, strict=True)]
        return _differing([answer for answer in found if answer is not None]) is None

    def cases(self, session: LoadedProgram, gate: Gate) -> None:
        """Runs the families, unseen shapes, and the task's own shapes that the oracle holds."""
        if gate == "fast":  # a family of a small workload costs a GPU almost nothing
            families = self.family_cases()
            known = {case.name for case in families}
            todo = [*families, *(case for case in self.fast_gate_cases() if case.name not in known)]
        else:
            todo = [*self.family_cases(), *self.unseen_cases(), *self.own_cases()]
        todo += self.admitted_cases(self.parsed, self.program, known=todo)
        ran = []
        for batch in _batches(alternating_memory([case for case in todo if self.usable(case)])):
            ran += self.run_batch(session, batch, together=gate == "fast")
        assert self.main is not None
        self.checks["families"] = [case.family for case in ran if case.workload == self.main.workload.name]

    def run_batch(self, session: LoadedProgram, batch: Sequence[Item], *, together: bool) -> list[VerificationCase]:
        """Runs and judges a batch; returns the cases that were judged.

        A message ends with the first failure. Where the reference fails on those inputs too, on this device, that is no
        evidence of the program: the case is skipped, and those after it are run.
        """
        ran, start = [], 0
        while start < len(batch):
            rest, outcomes = batch[start:], session.run_many(batch[start:], together=together)
            start = len(batch)
            for place, (item, outcome) in enumerate(zip(rest, outcomes, strict=False)):
                if isinstance(outcome, Verdict) and self.refused_too(item[0], outcome):
                    start = len(batch) - len(rest) + place + 1
                elif self.settle(item, outcome) is not None:
                    ran.append(item[0])
        return ran

    def refused_too(self, case: VerificationCase, verdict: Verdict) -> bool:
        """Whether the reference refuses a case's inputs on the device, as the program did; it is then skipped."""
        why = refusal(self.asked(), case) if self.asked is not None and asks(verdict) else ""
        if why:
            self.skipped[case.name] = REFUSED + why
        return bool(why)

    def second_call(self, session: LoadedProgram) -> None:
        """Calls in a row on one state (`sequences.call_sequence`), and reads the first call's outputs once more."""
        assert self.main is not None
        steps = self.oracle.sequence(self.main.workload.name)
        self.judge_sequence(steps, session.sequence(steps, together=self.checks["gate"] == "fast"))

    def noop(self) -> None:
        """Records whether the outputs are correct without the program's kernels."""
        if self.main is None:
            self.checks["noop_right"] = self.correct_without_kernels()
            return
        cases = [case for case in map(self.main_case, ("normal", "given")) if case.counts]
        try:
            with self.loaded(None, self.oracle.state, mode="noop") as session:
                outcomes = session.run_many([(case, {}) for case in cases])
                right = len(outcomes) == len(cases)
                for case, outcome in zip(cases, outcomes, strict=False):
                    right = right and isinstance(outcome, CallReply)
                    if isinstance(outcome, CallReply):
                        judge(case, outcome)
        except Crowded:
            raise
        except (Rejected, CandidateError, DeviceError):  # an operator may fail on what no kernel wrote
            right = False
        self.checks["noop_right"] = right

    # ---------------------------------------------------------------- small parts

    def settle(self, item: Item, outcome: Outcome, prefix: str = "") -> CallReply | None:
        """Judges one outcome; None for a shape that the program's guards refuse."""
        case, settings = item
        if isinstance(outcome, Verdict):
            raise Rejected(outcome)
        if isinstance(outcome, GuardFailed):
            self.note_declined(case, outcome)
            return None
        self.judge(case, outcome, prefix, int(settings.get("poison", POISON_A)))
        return outcome

    def _shapes(self) -> dict[str, list[str]]:
        """The input shapes of the verdict's workloads, the large ones included."""
        workloads = {w.name: w for w in self.oracle.handle.task.workloads}
        large = set(self.oracle.skipped)
        small = dict.fromkeys(name for name in self.evidence.workloads() if name not in large)
        shapes = {name: _shapes_of(self.oracle.case(name, self.first_family(name)).inputs) for name in small}
        for name in self.evidence.workloads():
            if name in large:
                shapes[name] = [f"{spec.dtype}{list(spec.shape)}" for spec in workloads[name].specs]
        return shapes


def _differing(answers: Sequence[CallReply]) -> tuple[int, tuple[int, tuple[int, ...]]] | None:
    """(number of the first answer that differs from the first one, where); None where all have the same bits."""
    for number, other in enumerate(answers[1:], 1):
        place = first_difference(answers[0], other)
        if place is not None:
            return number, place
    return None


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in order, in batches of at most BATCH_BYTES of inputs or one case."""
    batch: list[Item] = []
    held = 0
    for item in items:
        size = sum(tensor.storage.nbytes for tensor in tensor_leaves(item[0].inputs))
        if batch and held + size > BATCH_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size
    if batch:
        yield batch


def _shapes_of(inputs: Any) -> list[str]:
    return [f"{tensor.dtype}{list(tensor.shape)}" for tensor in tensor_leaves(inputs)]
