"""The cases of one task, each with inputs, a state table and the fp64 expectation.

A case is a workload and an input family. It is computed on first use by the task host alone (three runs of the
reference: native, fp64, and fp64 on nudged inputs) and kept for further candidates. The oracle lives in the parent; no
candidate has access to an expectation.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

import numpy as np

from hipwright.errors import HipwrightError, InfrastructureError, TaskError
from hipwright.events import Listener, silent
from hipwright.records import Status, TolerancePolicy, Workload
from hipwright.task import TaskHandle
from hipwright.tensors import Tree, tensor_leaves
from hipwright.verify import inputs as draws
from hipwright.verify.admitted.task_sizes import TaskSizes
from hipwright.verify.cpu.skipped import too_many
from hipwright.verify.degenerate import degenerate
from hipwright.verify.expectation import Expectations
from hipwright.verify.expected import Expected, rules
from hipwright.verify.tolerance import LARGEST, NEAR_CONSTANT

SMALL_ELEMENTS = 4096  # of a workload on which every family runs
FULL_ELEMENTS = 1 << 21  # inputs, parameters and buffers of a workload that is still run as given
FULL_OPERATIONS = float(1 << 34)  # of its products and convolutions
MUTATED = "mutated"  # new inputs and new parameters, for a second call in the same process
TRIALS = tuple(f"trial{i}" for i in range(1, 6))  # KernelBench's five draws

Role = Literal["families", "full", "unseen"]


@dataclass(frozen=True, eq=False)
class VerificationCase:
    """One set of inputs with its expectation. rejected: why it cannot be judged; degenerate: why it proves nothing."""

    workload: str
    family: str
    seed: int
    inputs: Tree
    state: Tree
    expected: Expected
    rejected: str = ""
    degenerate: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """workload/family, as in messages."""
        return f"{self.workload}/{self.family}"

    @property
    def counts(self) -> bool:
        """Whether it is evidence."""
        return not (self.rejected or self.degenerate)


@dataclass(frozen=True)
class PlannedWorkload:
    """A workload to verify. role: run with all families, as an unseen shape, or as given."""

    workload: Workload
    role: Role


@dataclass
class Oracle:
    """Cases of one task. Safe to use from several threads.

    seed: draws all inputs and states; None draws a secret one now. policy: the task's own when None. skipped: given
    workloads too large to run here, with the reason. Raises TaskError where the reference fails on its own inputs.
    """

    handle: TaskHandle
    seed: int | None = None
    policy: TolerancePolicy | None = None
    listener: Listener = silent
    full_elements: int = FULL_ELEMENTS
    small_elements: int = SMALL_ELEMENTS
    skipped: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.seed is None:
            self.seed = secrets.randbits(48)
        self.policy = self.policy or self.handle.task.tolerance
        self._expectations = Expectations(self.handle, self.policy, self._seed("nudge"))
        self.sizes = TaskSizes(self.handle)
        self._lock = threading.RLock()
        self._cases: dict[tuple[str, str], VerificationCase] = {}
        self._domains: dict[str, draws.Domain] = {}
        self._families: dict[str, tuple[str, ...]] = {}
        self._states: dict[int, Tree] = {}
        self._planned: tuple[PlannedWorkload, ...] | None = None
        self._held: dict[int, tuple[PlannedWorkload, ...] | None] = {}
        self._known_effects: tuple[bool, tuple[str, ...]] | None = None
        self.seconds = 0.0  # spent on computing cases so far

    # ---------------------------------------------------------------- what to verify

    @property
    def kernelbench(self) -> bool:
        """True under KernelBench's own rule."""
        assert self.policy is not None
        return self.policy.mode == "kernelbench"

    def planned(self) -> tuple[PlannedWorkload, ...]:
        """The workloads to verify: one for all families first, then unseen derived ones, then the task's own."""
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
        with self._lock:
            if workload not in self._families:
                self._families[workload] = draws.applicable(self._base(workload, "given"), self._domain(workload))
            return self._families[workload]

    def _plan(self) -> list[PlannedWorkload]:
        own = [w for w in self.handle.task.workloads if w.origin != "derived"]
        first = self.handle.derive(self.small_elements)
        derived = {w.name: w for w in self.handle.task.workloads if w.origin == "derived"}
        if first is not None:
            derived = {first.name: first, **derived}
        small = [PlannedWorkload(w, "families" if i == 0 else "unseen") for i, w in enumerate(derived.values())]
        full = []
        for workload in own:
            size = self._elements(workload)
            operations = self.handle.operations(workload.name)
            if size > self.full_elements:
                self.skipped[workload.name] = too_many(f"{size} elements")
            elif operations > FULL_OPERATIONS:
                self.skipped[workload.name] = too_many(f"{operations:.2g} operations")
            else:
                full.append(PlannedWorkload(workload, "full"))
        if not small and full:
            return [PlannedWorkload(full[0].workload, "families"), *full[1:]]
        if not small and own:
            raise TaskError(
                "the task is too large for the cpu target and no smaller shapes could be derived from it",
                hint="give get_input_groups() with a small set of inputs",
                status="unscorable",
            )
        return [*small, *full]

    def _elements(self, workload: Workload) -> int:
        """Elements of inputs, parameters and buffers."""
        state = self._state(0)
        held = sum(t.numel for t in tensor_leaves((state["params"], state["buffers"])))
        return held + sum(prod(spec.shape) for spec in workload.specs)

    # ---------------------------------------------------------------- cases

    def case(self, workload: str, family: str) -> VerificationCase:
        """The case, computed on first use."""
        with self._lock:
            key = (workload, family)
            if key not in self._cases:
                start = time.perf_counter()
                case = self._make(workload, family)
                spent = time.perf_counter() - start
                self.seconds += spent
                self._cases[key] = replace(case, seconds=spent)
                self.listener("case", {"workload": workload, "family": family, "seconds": spent})
            return self._cases[key]

    def status(self) -> tuple[Status, str] | None:
        """("unscorable" or "degenerate", why) where the task can judge no program; else None."""
        random, written = self._side_effects()
        if random:
            return "unscorable", "the reference draws random numbers, so no fixed output is right"
        if written:
            return "unscorable", (
                f"the reference writes to its own input ({', '.join(written)}), which a program may not do: "
                "let forward work on a copy"
            )
        reasons = []
        for planned in self.planned():
            for family in self.families(planned.workload.name):
                case = self.case(planned.workload.name, family)
                if case.counts:
                    return None
                reasons.append(f"{case.name}: {case.rejected or case.degenerate}")
        return "degenerate", "no workload proves anything: " + "; ".join(reasons[:4])

    def _side_effects(self) -> tuple[bool, tuple[str, ...]]:
        """Whether the reference draws random numbers, and which inputs it writes to."""
        with self._lock:
            if self._known_effects is None:
                first = self.planned()[0].workload.name
                info = self.handle.reference(self._base(first, "given"), self._state(0), dtype="native")[2]
                self._known_effects = bool(info.get("random")), tuple(map(str, info.get("mutated_inputs") or ()))
            return self._known_effects

    @property
    def state(self) -> Tree:
        """The state table of every case but `MUTATED`."""
        with self._lock:
            return self._state(0)

    def prepare(self, *, every: bool = True) -> None:
        """Computes the cases of a verification now instead of on first use. every: those of the full gate."""
        for planned in self.planned():
            name = planned.workload.name
            known = self.families(name)
            wanted = known if every and planned.role == "families" else known[:2]
            for family in (*wanted, MUTATED) if planned.role == "families" else wanted:
                self.case(name, family)

    def seed_of(self, *parts: object) -> int:
        """A seed derived from this oracle's own, one for each name."""
        return self._seed(*parts)

    def _seed(self, *parts: object) -> int:
        return int(draws.generator(self.seed or 0, *parts).integers(0, 2**31))

    def _base(self, workload: str, family: str) -> Tree:
        return self.handle.inputs(workload, self._seed("inputs", workload, family))

    def _state(self, variant: int) -> Tree:
        if variant not in self._states:
            seed = self._seed("state", variant)
            state = self.handle.init_state(seed)
            if not self.kernelbench:
                other = self.handle.init_state(self._seed("twin", variant))
                state = draws.randomise_state(state, other, seed, str(variant))
            self._states[variant] = state
        return self._states[variant]

    def _domain(self, workload: str) -> draws.Domain:
        """The domain of a workload's inputs; restricted where signed values break a reference that the given ones do
        not."""
        if workload not in self._domains:
            given = self._base(workload, "given")
            domain = draws.observe(given, self._base(workload, "twin"))
            self._domains[workload] = domain
            if any(not leaf.fixed and leaf.low >= 0 for leaf in domain.leaves):
                usual = self._nonfinite(given)
                signed = draws.make(given, "normal", domain, self.seed or 0, workload)
                if self._nonfinite(signed) > usual:
                    self._domains[workload] = replace(domain, restricted=True)
        return self._domains[workload]

    def _nonfinite(self, inputs: Tree) -> float:
        """The share of NaN and Inf among the fp64 reference's float outputs; 2 when it raises."""
        try:
            outputs = self.handle.reference(inputs, self._state(0))[0]
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            return 2.0
        values = [t.to_f64() for t in tensor_leaves(outputs) if t.is_float]
        total = sum(v.size for v in values)
        return sum(int((~np.isfinite(v)).sum()) for v in values) / total if total else 0.0

    def _make(self, workload: str, family: str) -> VerificationCase:
        scales = draws.LARGE_SCALES if family == "large" else (1.0,)
        case = None
        for scale in scales:
            case = self._attempt(workload, family, scale)
            if not case.rejected:
                break
        assert case is not None
        if case.rejected or self.kernelbench or family == MUTATED:
            return case
        other = self.case(workload, MUTATED)
        why = degenerate(case.expected, case.inputs, other.expected if not other.rejected else None)
        return replace(case, degenerate=why)

    def _attempt(self, workload: str, family: str, scale: float) -> VerificationCase:
        seed = self._seed("inputs", workload, family)
        inputs, state = self._base(workload, family), self._state(1 if family == MUTATED else 0)
        if family not in ("given", *TRIALS):
            domain = replace(self._domain(workload), large=scale)
            shape = "normal" if family == MUTATED else family
            inputs = draws.make(inputs, shape, domain, (self.seed or 0) + (family == MUTATED), workload)
        blank = VerificationCase(workload, family, seed, inputs, state, Expected({}))

        def redraw(number: int) -> Tree:
            other = self.handle.inputs(workload, self._seed("again", workload, family, number))
            if family in ("given", *TRIALS):
                return other
            return draws.make(other, shape, domain, self._seed("again", number), workload)

        try:
            expected = self._expectations.of(inputs, state, redraw, near_constant=family in NEAR_CONSTANT)
        except HipwrightError as error:
            if isinstance(error, InfrastructureError) or family in ("given", *TRIALS):
                raise
            return replace(blank, rejected=f"the reference refuses these inputs: {error.message[:200]}")
        return replace(blank, expected=expected, rejected=self._overflow(expected) if family != "given" else "")

    def _overflow(self, expected: Expected) -> str:
        """Why a family exceeds the dtype's range, or ""."""
        for rule in rules(expected.tree):
            if rule.element is None or not rule.expected.size:
                continue
            finite = np.isfinite(rule.expected)
            if finite.any() and np.abs(rule.expected[finite]).max() > LARGEST[rule.spec.dtype] / 4:
                return f"the reference leaves the range of {rule.spec.dtype}"
            if finite.mean() < 0.1:
                return "the reference gives NaN or Inf nearly everywhere"
            if rule.judged is not None and rule.judged.mean() < 0.99:
                return "the honest baseline overflows"
        return ""
