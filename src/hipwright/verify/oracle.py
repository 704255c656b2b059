"""The cases of one task, each with inputs, a state table and the fp64 expectation.

A case is a workload and an input family. It is computed on first use by the task host alone (three runs of the
reference: native, fp64, and fp64 on nudged inputs) and kept for further candidates. The oracle lives in the parent; no
candidate has access to an expectation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from hipwright.errors import TaskError
from hipwright.events import Listener, silent
from hipwright.records import Status, TensorSpec, Workload
from hipwright.tensors import Tree, tensor_leaves
from hipwright.verify import inputs as draws
from hipwright.verify.admitted.task_sizes import TaskSizes
from hipwright.verify.case_draws import MUTATED, TRIALS, USUAL, WHOLE, CaseDraws, VerificationCase
from hipwright.verify.cpu.skipped import too_many
from hipwright.verify.degenerate import MIN_DISCRIMINATING, TRIVIAL, case_evidence_of
from hipwright.verify.expected import Expected, rules
from hipwright.verify.sequences.call_sequence import SequencedCall, call_sequence

__all__ = ["MUTATED", "TRIALS", "Oracle", "PlannedWorkload", "VerificationCase"]

SMALL_ELEMENTS = 4096  # of a workload on which every family runs
FULL_ELEMENTS = 1 << 21  # inputs, parameters and buffers of a workload that is still run as given
FULL_OPERATIONS = float(1 << 34)  # of its products and convolutions
LAST_ELEMENTS = 1 << 30  # likewise, where no other shapes can be had
LAST_OPERATIONS = float(1 << 37)
LAST_FAMILIES = ("given", "offset", "normal", "scales", "strided", *draws.SPECIAL)
"""What runs there beside secret inputs: a reference of 2^37 operations takes a minute for each."""
LONG_OUTPUTS = 1 << 22
"""Elements of one call's outputs from which few families run too, such as gradients of all parameters: six results of a
case, and its budgets, are 300 MB."""
Role = Literal["families", "full", "unseen"]


@dataclass(frozen=True)
class PlannedWorkload:
    """A workload to verify. role: run with all families, as an unseen shape, or as given."""

    workload: Workload
    role: Role


@dataclass
class Oracle(CaseDraws):
    """Cases of one task. Safe to use from several threads.

    seed: draws all inputs and states; None draws a secret one now. policy: the task's own when None. skipped: given
    workloads too large to run here, with the reason; last: those of them that run here all the same, since no smaller
    shapes could be had. Raises TaskError where the reference fails on its own inputs.
    """

    listener: Listener = silent
    full_elements: int = FULL_ELEMENTS
    small_elements: int = SMALL_ELEMENTS
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sizes = TaskSizes(self.handle)
        self.last: set[str] = set()
        self._cases: dict[tuple[str, str], VerificationCase] = {}
        self._families: dict[str, tuple[str, ...]] = {}
        self._kinds: dict[str, bool] = {}
        self._sequences: dict[str, tuple[SequencedCall, ...]] = {}
        self._others: dict[str, Expected | None] = {}
        self._planned: tuple[PlannedWorkload, ...] | None = None
        self._held: dict[int, tuple[PlannedWorkload, ...] | None] = {}
        self._making = threading.local()

    @property
    def seconds(self) -> float:
        """What this thread has spent on computing cases, or waited for them."""
        return float(getattr(self._making, "seconds", 0.0))

    @contextmanager
    def making(self) -> Iterator[None]:
        """Counts the block's time among `seconds`."""
        start, before = time.perf_counter(), self.seconds
        try:
            yield
        finally:
            self._making.seconds = before + time.perf_counter() - start

    # ---------------------------------------------------------------- what to verify

    def planned(self) -> tuple[PlannedWorkload, ...]:
        """The workloads to verify: one for all families first, then unseen derived ones, then the task's own."""
        if (known := self._planned) is not None:  # without the lock, which another thread may hold for seconds
            return known
        with self._lock:
            if self._planned is None:
                self._planned = tuple(self._plan())
            return self._planned

    def held(self, part: int) -> tuple[PlannedWorkload, ...] | None:
        """Further derived workloads that keep one size of the task's own, for a program that supports only that size.

        part: which size, from 0 (`TaskHandle.held`); None after the last.
        """
        with self._lock:
            if part not in self._held:
                known = {planned.workload.name for planned in self.planned()}
                found = self.handle.held(part)
                self._held[part] = (
                    None if found is None else tuple(PlannedWorkload(w, "unseen") for w in found if w.name not in known)
                )
            return self._held[part]

    def families(self, workload: str) -> tuple[str, ...]:
        """The families that apply to a workload; in KernelBench mode five trials of the given one."""
        if self.kernelbench:
            return TRIALS
        if (known := self._families.get(workload)) is not None:  # as in `planned`
            return known
        with self._lock:
            if workload not in self._families:
                base = self._base(workload, "given")
                self._families[workload] = draws.applicable(base, self._domain(workload), self.special)
            return self._families[workload]

    def takes_long(self, workload: str) -> bool:
        """Whether a case of these shapes takes seconds, so that `LAST_FAMILIES` alone run beside secret inputs."""
        if workload in self.last or self.handle.slow:
            return True
        outputs = rules(self.case(workload, self.families(workload)[0]).expected.tree)
        return not self.kernelbench and sum(rule.expected.size for rule in outputs) >= LONG_OUTPUTS

    def _plan(self) -> list[PlannedWorkload]:
        own = [w for w in self.handle.task.workloads if w.origin != "derived"]
        smallest = self.handle.derive(self.small_elements)
        derived = {w.name: w for w in self.handle.task.workloads if w.origin == "derived"}
        if smallest is not None:
            derived = {smallest.name: smallest, **derived}
        small = sorted(derived.values(), key=lambda w: not self.of_kind(w.name))  # the cases of others are no evidence
        full = []
        for workload in own:
            size = self._elements(workload)
            operations = self.handle.operations(workload.name)
            if size > self.full_elements:
                self.skipped[workload.name] = too_many(f"{size} elements")
            elif operations > FULL_OPERATIONS:
                self.skipped[workload.name] = too_many(f"{operations:.2g} operations")
            elif (outputs := self.handle.output_elements(workload.name)) > self.handle.most_outputs:
                self.skipped[workload.name] = too_many(f"{outputs} elements of outputs")
            else:
                full.append(PlannedWorkload(workload, "full"))
        if full and not (small and self.of_kind(small[0].name)):
            first, *full = full
            small = [first.workload, *small]
        if not small:
            if last := self._last(own):
                del self.skipped[last[0].workload.name]
                return last
            raise TaskError(
                "the task is too large for the cpu target and no smaller shapes could be derived from it",
                hint="give get_input_groups() with a small set of inputs",
                status="unscorable",
            )
        main, *unseen = small
        return [PlannedWorkload(main, "families"), *(PlannedWorkload(w, "unseen") for w in unseen), *full]

    def last_resort(self) -> list[PlannedWorkload]:
        """The task's own workloads, for a program that claims none of the planned ones: as far as they can be run."""
        self.planned()
        with self._lock:
            return self._last([w for w in self.handle.task.workloads if w.origin != "derived"])

    def _last(self, own: Sequence[Workload]) -> list[PlannedWorkload]:
        found = []
        for workload in own:
            short = self.handle.operations(workload.name) <= LAST_OPERATIONS
            if workload.name in self.skipped and short and self._elements(workload) <= LAST_ELEMENTS:
                found.append(PlannedWorkload(workload, "full"))
        self.last.update(planned.workload.name for planned in found[:1])
        return found[:1]

    def _elements(self, workload: Workload) -> int:
        """Elements of inputs, parameters and buffers."""
        state = self._state(USUAL)
        held = sum(t.numel for t in tensor_leaves((state["params"], state["buffers"])))
        return held + sum(prod(spec.shape) for spec in workload.specs)

    # ---------------------------------------------------------------- cases

    def case(self, workload: str, family: str) -> VerificationCase:
        """The case, computed on first use."""
        key = (workload, family)
        if (known := self._cases.get(key)) is not None:  # as in `planned`
            return known
        with self.making(), self._lock:
            if key not in self._cases:
                start = time.perf_counter()
                case = self._make(workload, family)
                spent = time.perf_counter() - start
                self._cases[key] = replace(case, seconds=spent)
                self.listener("case", {"workload": workload, "family": family, "seconds": spent})
            return self._cases[key]

    def sequence(self, workload: str) -> tuple[SequencedCall, ...]:
        """Calls in a row on one state, on this workload."""
        with self.making(), self._lock:
            if workload not in self._sequences:
                known = self.families(workload)
                normal, given = self.case(workload, "normal" if "normal" in known else known[0]), known[0]
                first = self.case(workload, given) if normal.rejected else normal
                mutated, third = self.case(workload, MUTATED), self.case(workload, given)
                self._sequences[workload] = call_sequence(
                    first,
                    None if mutated.rejected else mutated,
                    third,
                    self._expectations,
                    self._redraws,
                    self._seed("sequence", workload),
                )
            return self._sequences[workload]

    def _redraws(self, case: VerificationCase) -> Callable[[int], Tree]:
        """A function that draws further inputs of the case's kind."""
        whole = case.state is self._states.get(WHOLE)
        family = case.family if case.family != MUTATED else "exact" if whole else "normal"

        def redraw(number: int) -> Tree:
            other = self.handle.inputs(case.workload, self._seed("again", case.workload, case.family, number))
            if family in ("given", *TRIALS):
                return other
            domain, seed = self._domain(case.workload), self._seed("again", number)
            return draws.make(other, family, domain, seed, case.workload, self.special)

        return redraw

    def status(self, *, cases: bool = True) -> tuple[Status, str] | None:
        """("unscorable" or "degenerate", why) where the task can judge no program; else None.

        cases: whether to look at what cases prove; else that is left to the evidence of the judged ones.
        """
        effects = self.side_effects
        if effects.on_host:
            return "unscorable", (
                "the reference draws from Python's or NumPy's generator, which no program can read: draw with torch"
            )
        if effects.seeds:
            return "unscorable", (
                "the reference seeds torch's generator itself, which a program may not do: draw under the caller's seed"
            )
        if effects.shared:
            return "unscorable", (
                f"the reference writes to {effects.shared[0]}, elements of which are those of {effects.shared[1]} too: "
                "give inputs that do not overlap"
            )
        return self._proves_too_little() if cases else None

    def _proves_too_little(self) -> tuple[Status, str] | None:
        reasons, found = [], dict.fromkeys(TRIVIAL, 0)
        for planned in self.planned():
            name = planned.workload.name
            for family in self.families(name):
                case = self.case(name, family)
                if not case.counts:
                    reasons.append(f"{case.name}: {case.rejected or case.degenerate}")
                    continue
                if self.kernelbench:
                    return None
                for answer in case.rejects if self.of_kind(name) else ():
                    found[answer] += 1
                if min(found.values()) >= MIN_DISCRIMINATING:
                    return None
        if not any(found.values()):
            return "degenerate", "no workload proves anything: " + "; ".join(reasons[:4])
        few = ", ".join(
            f"{n} reject {answer.replace('_', ' ')}" for answer, n in found.items() if n < MIN_DISCRIMINATING
        )
        return (
            "degenerate",
            f"the task proves too little: of all cases {few}; a pass needs {MIN_DISCRIMINATING} of each",
        )

    def of_kind(self, workload: str) -> bool:
        """Whether a workload's shapes are of the kind of the task's own: no dimension of theirs has shrunk to 1."""
        with self._lock:
            if workload not in self._kinds:
                own = [w for w in self.handle.task.workloads if w.origin != "derived"]
                specs = self.handle.workload(workload).specs
                self._kinds[workload] = any(_same_kind(specs, one.specs) for one in own) or not own
            return self._kinds[workload]

    def first_workload(self) -> str:
        """The first planned one."""
        return self.planned()[0].workload.name

    def _make(self, workload: str, family: str) -> VerificationCase:
        case = self.drawn_case(workload, family)
        if case.rejected or self.kernelbench or family == MUTATED:
            return case
        if workload not in self._planned_names():  # chosen for one program: other evidence is not worth its time
            found = case_evidence_of(case.expected, case.inputs, None)
            return replace(case, degenerate=found.degenerate, rejects=found.rejects - {"other_inputs"})
        found = case_evidence_of(case.expected, case.inputs, self._on_others(workload))
        return replace(case, degenerate=found.degenerate, rejects=found.rejects)

    def _on_others(self, workload: str) -> Expected | None:
        """What the reference gives for other inputs and parameters, None where they do not suit it. Where no second
        call is judged, one run is enough: what it gives is compared, and nothing with it.
        """
        if workload == self.first_workload():
            other = self.case(workload, MUTATED)
            return None if other.rejected else other.expected
        if workload not in self._others:
            self._others[workload] = self.drawn_values(workload, MUTATED)
        return self._others[workload]

    def _planned_names(self) -> set[str]:
        held = [one for part in self._held.values() for one in part or ()]
        return {*self.last, *(planned.workload.name for planned in (*self.planned(), *held))}

    def prepare(self, *, every: bool = True) -> None:
        """Computes the cases of a verification now instead of on first use. every: those of the full gate."""
        for planned in self.planned():
            name = planned.workload.name
            known, main = self.families(name), planned.role == "families"
            wanted = known if every and main else known[:2]
            if wanted is known and self.takes_long(name):
                wanted = tuple(family for family in known if family in LAST_FAMILIES)
            for family in (*wanted, MUTATED) if main else wanted:
                self.case(name, family)


def _same_kind(specs: Sequence[TensorSpec], own: Sequence[TensorSpec]) -> bool:
    pairs = zip(specs, own, strict=False)
    return all(not n == 1 < m for a, b in pairs for n, m in zip(a.shape, b.shape, strict=False))
