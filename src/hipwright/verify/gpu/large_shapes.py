"""The stages of a verification whose inputs and results stay on the device: the task's own large shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hipwright.errors import CandidateError, DeviceError
from hipwright.program import Parsed
from hipwright.records import Build, Program, TensorSpec
from hipwright.tensors import Tree, leaves
from hipwright.verify.atomics import adds_floats, library_adds_in_any_order
from hipwright.verify.candidate import Rejected
from hipwright.verify.gpu.chunk_source import span_bytes
from hipwright.verify.gpu.client import CandidateWorker
from hipwright.verify.gpu.connection import Mode
from hipwright.verify.gpu.device_judging import (
    AcceptedDigests,
    judge_on_device,
    judge_set,
    repeats_on_device,
    stray_write_verdict,
)
from hipwright.verify.gpu.hosts.device_process import Crowded
from hipwright.verify.gpu.loaded import LoadedProgram
from hipwright.verify.oracle import MUTATED
from hipwright.verify.verification import Verification

if TYPE_CHECKING:
    from hipwright.verify.gpu.reference import DeviceReference
    from hipwright.verify.gpu.reference_handles import ExpectationInfo

FAMILIES = ("given", "normal")
"""Of inputs that only the device holds."""
OPEN_ORDER = "within tolerance (float atomics)"
LIBRARY_ORDER = "bit-equal with deterministic library operators"
"""What `checks["repeats"]` says where two runs need not be bit-equal as they are."""
BIG_BYTES = 4 << 30  # inputs above this are verified with given values alone


@dataclass(frozen=True)
class TimedInputs:
    """The inputs that a task is timed on, as a worker holds them.

    Slots 0 .. slots-1 of `workload` under `seed`, the model's state, and the results on the first slot that are known
    to be correct.
    """

    state: Tree
    set_name: str
    workload: str
    seed: int
    slots: int
    seen: AcceptedDigests | None = None


@dataclass(kw_only=True)
class LargeShapeVerification(Verification):
    """Verifies one program on the worker's device. reference: judges the shapes that are too large for the oracle."""

    parsed: Parsed | None
    program: Program
    build: Build | None
    reference: DeviceReference | None
    worker: CandidateWorker
    load_options: Mapping[str, Any] | None

    def loaded(self, build: Build | None, state: Tree, mode: Mode = "run") -> LoadedProgram:
        """The program in the worker, which may draw where the task does. mode: see `CandidateWorker.load`."""
        options = {**(self.load_options or {}), "draws": self.oracle.side_effects.draws}
        return self.worker.load(self.program, build, state, mode=mode, load_options=options)

    def large(self, session: LoadedProgram, reference: DeviceReference) -> None:
        """Verifies the task's own shapes that are too large for the oracle, on the device."""
        for name in self.large_own_workloads():
            source = reference.inputs(name, self.oracle.seed_of("device", name), "given")
            big = _bytes(source.arguments) > BIG_BYTES
            for family in FAMILIES[:1] if big else FAMILIES:
                self.on_device(session, reference, name, family)
            if self.main is None and not (big or self.oracle.kernelbench):
                self.again_on_device(session, reference, name)
            self.skipped.pop(name, None)
        if self.main is None and not self.evidence.workloads():
            raise self.claims_nothing()
        changed = session.audit()
        if changed:
            raise Rejected(stray_write_verdict(changed[0]))
        session.free_sets(BIG_BYTES)  # a timing needs the memory

    def large_own_workloads(self) -> list[str]:
        """The task's own workloads that are too large for the oracle."""
        own = [w.name for w in self.oracle.handle.task.workloads if w.origin != "derived"]
        return [name for name in own if name in self.oracle.skipped]

    def again_on_device(self, session: LoadedProgram, reference: DeviceReference, name: str) -> None:
        """Repeats and a second call on the device, for a program that supports the task's own large shapes alone."""
        assert self.oracle.policy is not None
        seeds = [self.oracle.seed_of("device", name), self.oracle.seed_of("device", name, MUTATED)]
        cases = [reference.expect(name, s, self.oracle.state, self.oracle.policy, family="normal") for s in seeds]
        if not all(case.counts for case in cases):
            return
        sources = [reference.inputs(name, seed, "normal") for seed in seeds]
        library = self.library_order_open()
        found = repeats_on_device(session, reference, cases, sources, self._open_order, library=library)
        self.checks["repeats"] = {"open": OPEN_ORDER, "library": LIBRARY_ORDER}.get(found, "bit-equal")
        self.checks["second_call"] = "pass"

    def library_order_open(self) -> bool:
        """Whether a library operator of the plan may add in any order."""
        return self.parsed is not None and library_adds_in_any_order(self.parsed.functions.values())

    def _open_order(self, stats: Sequence[Mapping[str, Any]]) -> bool:
        """Whether float atomics leave the order of sums open."""
        counted = any(entry.get("float_atomics") for entry in stats)
        return self.parsed is None or counted or adds_floats(self.parsed.hip)

    def on_device(self, session: LoadedProgram, reference: DeviceReference, name: str, family: str) -> None:
        """One case whose inputs and outputs stay on the device and are read in chunks."""
        seed = self.oracle.seed_of("device", name)
        assert self.oracle.policy is not None
        expected = reference.expect(name, seed, self.oracle.state, self.oracle.policy, family=family)
        label = f"{name}/{family}"
        if expected.rejected:
            self.skipped[label] = expected.rejected
            return
        session.place(label, reference.inputs(name, seed, family))
        self.one_on_device(session, reference, expected, label)

    def timed_inputs(self, timed: TimedInputs) -> None:
        """See `verify_timed`."""
        reference, policy = self.reference, self.oracle.policy
        assert reference is not None and policy is not None
        self.skipped |= self.oracle.skipped
        self.checks |= {"device": self.worker.judged_on, "gate": "fast"}
        with self.loaded(self.build, timed.state) as session, self.timed("large"):
            session.place(timed.set_name, reference.inputs(timed.workload, timed.seed), timed.slots)
            expected = reference.expect(timed.workload, timed.seed, timed.state, policy)
            if expected.rejected:
                self.skipped[timed.workload] = expected.rejected
                raise self.claims_nothing()
            self.one_on_device(session, reference, expected, timed.set_name, timed.seen)
        self.skipped.pop(timed.workload, None)
        if not self.evidence.workloads():
            raise self.claims_nothing()

    def one_on_device(
        self,
        session: LoadedProgram,
        reference: DeviceReference,
        expected: ExpectationInfo,
        set_name: str,
        seen: AcceptedDigests | None = None,
    ) -> None:
        """One call on the first slot of a set, judged on the device."""
        name, family = expected.drawn.workload, expected.drawn.family
        label = f"{name}/{family}"
        found = judge_set(session, reference, expected, set_name, seen)
        if expected.degenerate:
            self.skipped[label] = expected.degenerate
            return
        self.evidence.add_large(name)
        self.worst = max(self.worst or 0.0, found.worst_error)
        self.checks.setdefault("errors", {}).setdefault(name, {})[family] = round(found.worst_error, 4)
        self.checks.setdefault("large", {})[label] = expected.reference

    def correct_without_kernels(self) -> bool:
        """As `noop`, on the device, for the task's own large shapes."""
        assert self.reference is not None and self.oracle.policy is not None
        name = self.evidence.workloads()[0]
        seed = self.oracle.seed_of("device", name)
        expected = self.reference.expect(name, seed, self.oracle.state, self.oracle.policy, family="given")
        try:
            with self.loaded(None, self.oracle.state, mode="noop") as session:
                session.place(f"{name}/given", self.reference.inputs(name, seed, "given"))
                judge_on_device(session, session.run_set(f"{name}/given"), self.reference, expected)
        except Crowded:
            raise
        except (Rejected, CandidateError, DeviceError):
            return False
        return True


def _bytes(arguments: Any) -> int:
    return sum(span_bytes(leaf) for leaf in leaves(arguments) if isinstance(leaf, TensorSpec))
