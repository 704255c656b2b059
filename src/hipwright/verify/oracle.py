"""What is right: cases of one task, each with inputs, a state table and the fp64 expectation.

A case is workload x family. It is made on first use from the task host alone (three runs of the reference: native,
fp64, and fp64 on nudged inputs) and kept, so the second candidate of a task costs nothing. The oracle lives in the
parent; no candidate ever sees an expectation.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

import numpy as np

from hipwright.errors import HipwrightError, InfrastructureError, TaskError
from hipwright.events import Listener, silent
from hipwright.records import Status, TolerancePolicy, Workload
from hipwright.task import TaskHandle
from hipwright.tensors import HostTensor, Tree, tensor_leaves
from hipwright.verify import inputs as draws
from hipwright.verify.expected import F64, Expected, Rule, rules
from hipwright.verify.left_out import too_many
from hipwright.verify.lint import degenerate
from hipwright.verify.tolerance import (
    ALIKE,
    LARGEST,
    UNIT,
    find_gather,
    kernelbench_rule,
    reduction_length,
    strict_rule,
    unchanged_rule,
)

SMALL_ELEMENTS = 4096  # per workload on which every family runs
FULL_ELEMENTS = 1 << 21  # inputs, parameters and buffers of a workload that is still run as given
FULL_OPERATIONS = float(1 << 34)  # of its products and convolutions
FEW, REDRAWS = 32, 6  # outputs of so few elements have their baseline's error taken from so many draws more
NATIVE_SLACK = 2.0  # times c where the expectation is the baseline itself
MUTATED = "mutated"  # new inputs and new parameters: what a second call of the same process meets
TRIALS = tuple(f"trial{i}" for i in range(1, 6))  # KernelBench's five draws

Role = Literal["families", "full", "unseen"]


@dataclass(frozen=True, eq=False)
class Case:
    """One thing to get right. rejected: why it cannot be judged; degenerate: why it would prove nothing."""

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
        """Whether it stands as evidence."""
        return not (self.rejected or self.degenerate)


@dataclass(frozen=True)
class Planned:
    """A workload that is verified and what for. skipped: given workloads too large to run here, with the reason."""

    workload: Workload
    role: Role


@dataclass
class Oracle:
    """Cases of one task. Safe to use from several threads.

    seed: draws everything; None draws one now (after the candidate is frozen, for a secret). policy: the task's own
    when None. Raises TaskError where the reference itself fails on its own inputs.
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
        self._lock = threading.RLock()
        self._cases: dict[tuple[str, str], Case] = {}
        self._domains: dict[str, draws.Domain] = {}
        self._families: dict[str, tuple[str, ...]] = {}
        self._states: dict[int, Tree] = {}
        self._nudged: dict[int, Tree] = {}
        self._planned: tuple[Planned, ...] | None = None
        self._held: dict[int, tuple[Planned, ...] | None] = {}
        self._seen: tuple[bool, tuple[str, ...]] | None = None
        self.seconds = 0.0  # spent in preparing cases so far

    # ---------------------------------------------------------------- what to verify

    @property
    def kernelbench(self) -> bool:
        """True under KernelBench's own rule."""
        assert self.policy is not None
        return self.policy.mode == "kernelbench"

    def planned(self) -> tuple[Planned, ...]:
        """The workloads to verify: one for all families first, then unseen derived ones, then the task's own."""
        with self._lock:
            if self._planned is None:
                self._planned = tuple(self._plan())
            return self._planned

    def held(self, part: int) -> tuple[Planned, ...] | None:
        """Further derived workloads, in which some size of the task's own is kept, for a program that is written for
        that size and so claims none that is planned. part: which size, from 0 (`TaskHandle.held`); None after the last.
        """
        with self._lock:
            if part not in self._held:
                known = {planned.workload.name for planned in self.planned()}
                found = self.handle.held(part)
                self._held[part] = (
                    None if found is None else tuple(Planned(w, "unseen") for w in found if w.name not in known)
                )
            return self._held[part]

    def families(self, workload: str) -> tuple[str, ...]:
        """The families that apply to a workload; KernelBench mode has five trials of the given one."""
        if self.kernelbench:
            return TRIALS
        with self._lock:
            if workload not in self._families:
                self._families[workload] = draws.applicable(self._base(workload, "given"), self._domain(workload))
            return self._families[workload]

    def _plan(self) -> list[Planned]:
        own = [w for w in self.handle.task.workloads if w.origin != "derived"]
        first = self.handle.derive(self.small_elements)
        derived = {w.name: w for w in self.handle.task.workloads if w.origin == "derived"}
        if first is not None:
            derived = {first.name: first, **derived}
        small = [Planned(w, "families" if i == 0 else "unseen") for i, w in enumerate(derived.values())]
        full = []
        for workload in own:
            size = self._elements(workload)
            operations = self.handle.operations(workload.name)
            if size > self.full_elements:
                self.skipped[workload.name] = too_many(f"{size} elements")
            elif operations > FULL_OPERATIONS:
                self.skipped[workload.name] = too_many(f"{operations:.2g} operations")
            else:
                full.append(Planned(workload, "full"))
        if not small and full:
            return [Planned(full[0].workload, "families"), *full[1:]]
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

    def case(self, workload: str, family: str) -> Case:
        """The case, made on first use."""
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
        """("unscorable" or "degenerate", why) when the task itself cannot judge anything; None when it can."""
        random, written = self._habits()
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

    def _habits(self) -> tuple[bool, tuple[str, ...]]:
        """Whether the reference draws random numbers, and which inputs it writes to."""
        with self._lock:
            if self._seen is None:
                first = self.planned()[0].workload.name
                info = self.handle.reference(self._base(first, "given"), self._state(0), dtype="native")[2]
                self._seen = bool(info.get("random")), tuple(map(str, info.get("mutated_inputs") or ()))
            return self._seen

    @property
    def state(self) -> Tree:
        """The state table of every case but `MUTATED`."""
        with self._lock:
            return self._state(0)

    def prepare(self, *, every: bool = True) -> None:
        """Make the cases that a verification asks for, now instead of on first use. every: those of the full gate."""
        for planned in self.planned():
            name = planned.workload.name
            known = self.families(name)
            wanted = known if every and planned.role == "families" else known[:2]
            for family in (*wanted, MUTATED) if planned.role == "families" else wanted:
                self.case(name, family)

    def seed_of(self, *parts: object) -> int:
        """A seed that nobody could know before this oracle's own, one for each name."""
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
        """What the inputs may be; signed values that break a reference which the given ones do not are restricted."""
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
        """Share of NaN and Inf among the fp64 reference's float outputs; 2 when it raises."""
        try:
            outputs = self.handle.reference(inputs, self._state(0))[0]
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            return 2.0
        values = [t.to_f64() for t in tensor_leaves(outputs) if t.is_float]
        total = sum(v.size for v in values)
        return sum(int((~np.isfinite(v)).sum()) for v in values) / total if total else 0.0

    def _make(self, workload: str, family: str) -> Case:
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

    def _attempt(self, workload: str, family: str, scale: float) -> Case:
        seed = self._seed("inputs", workload, family)
        inputs, state = self._base(workload, family), self._state(1 if family == MUTATED else 0)
        if family not in ("given", *TRIALS):
            domain = replace(self._domain(workload), large=scale)
            shape = "normal" if family == MUTATED else family
            inputs = draws.make(inputs, shape, domain, (self.seed or 0) + (family == MUTATED), workload)
        blank = Case(workload, family, seed, inputs, state, Expected({}))

        def again(number: int) -> Tree:
            other = self.handle.inputs(workload, self._seed("again", workload, family, number))
            if family in ("given", *TRIALS):
                return other
            return draws.make(other, shape, domain, self._seed("again", number), workload)

        try:
            expected = self._expect(inputs, state, again, alike=family in ALIKE)
        except HipwrightError as error:
            if isinstance(error, InfrastructureError) or family in ("given", *TRIALS):
                raise
            return replace(blank, rejected=f"the reference refuses these inputs: {error.message[:200]}")
        return replace(blank, expected=expected, rejected=self._overflow(expected) if family != "given" else "")

    def _overflow(self, expected: Expected) -> str:
        """Why a family leaves what the dtype can hold, or ""."""
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

    # ---------------------------------------------------------------- expectations

    def _expect(
        self, inputs: Tree, state: Tree, again: Callable[[int], Tree] | None = None, *, alike: bool = False
    ) -> Expected:
        """What is right on these inputs. again: more inputs of their kind, for leaves of few elements. alike: as
        `tolerance.floor`."""
        native, after, info = self.handle.reference(inputs, state, dtype="native")
        aliases = alias_pairs(info)
        if self.kernelbench:
            tree = _zip_rules("output", native, native, native, lambda p, n, e, m: kernelbench_rule(p, n))
            kept = {path: kernelbench_rule(f"buffer {path}", t) for path, t in after.items()}
            return Expected({"outputs": tree, "buffers": kept}, aliases)
        exact, exact_after, exact_info = self.handle.reference(inputs, state)
        dtype = str(exact_info.get("reference_dtype", "float64"))
        moved, moved_after = self._moved(inputs, state, exact, exact_after, native_only=dtype == "native")
        weights = tensor_leaves(state["params"])
        assert self.policy is not None
        # without float64 the baseline's own error is not seen: it is its own expectation
        c = self.policy.c * (NATIVE_SLACK if dtype == "native" else 1.0)

        usual = self._usual(native, state, again) if again is not None and dtype != "native" else {}

        def rule(path: str, n: HostTensor, e: HostTensor, m: HostTensor) -> Rule:
            length = reduction_length(tensor_leaves(inputs), weights, n.numel)
            return strict_rule(path, n, e, m, c=c, reduction=length, usual=usual.get(id(n)), alike=alike)

        tree = _zip_rules("output", native, exact, moved, rule)
        tree = _with_gather(tree, [t.to_f64() for t in tensor_leaves(inputs) if t.is_float])
        buffers = {}
        for path, tensor in after.items():
            same = np.array_equal(_raw(tensor), _raw(state["buffers"][path]))
            name = f"buffer {path}"
            buffers[path] = (
                unchanged_rule(name, tensor) if same else rule(name, tensor, exact_after[path], moved_after[path])
            )
        return Expected({"outputs": tree, "buffers": buffers}, aliases, reference_dtype=dtype)

    def _usual(self, native: Tree, state: Tree, again: Callable[[int], Tree]) -> dict[int, F64]:
        """{id of a leaf of few elements: the baseline's largest error there on other inputs of the same kind}.

        One draw of a loss may happen to be exact to the last bit, above all where large parts of it cancel.
        """
        mine = tensor_leaves(native)
        few = [n for n, leaf in enumerate(mine) if leaf.is_float and 0 < leaf.numel <= FEW]
        found: dict[int, F64] = {}
        for number in range(REDRAWS if few else 0):
            try:
                inputs = again(number)
                pair = [self.handle.reference(inputs, state, dtype=kind)[0] for kind in ("native", "float64")]
            except HipwrightError as error:
                if isinstance(error, InfrastructureError):
                    raise
                continue
            others = [tensor_leaves(tree) for tree in pair]
            for n in few:
                base, want = (leaves[n].to_f64() for leaves in others)
                if base.shape != mine[n].shape:
                    continue
                with np.errstate(invalid="ignore"):
                    error_here = np.nan_to_num(np.abs(base - want), nan=0.0, posinf=0.0)
                key = id(mine[n])
                found[key] = np.maximum(found[key], error_here) if key in found else error_here
        return found

    def _moved(
        self, inputs: Tree, state: Tree, exact: Tree, after: Mapping[str, HostTensor], *, native_only: bool
    ) -> tuple[Tree, Any]:
        """The reference on nudged inputs, in fp64 where it has that; the unmoved one where the nudge leaves its domain.

        native_only: inputs keep their dtype, since the reference takes no other.
        """
        seed = self._seed("nudge")
        if id(state) not in self._nudged:  # states are kept, so an id stays one state's
            held = {k: draws.nudge(state[k], seed, rounded=True) for k in ("params", "buffers")}
            self._nudged[id(state)] = {**state, **held}
        nudged = self._nudged[id(state)]
        try:
            arguments = draws.nudge(inputs, seed + 1, rounded=native_only)
            dtype: Literal["native", "float64"] = "native" if native_only else "float64"
            outputs, buffers, _ = self.handle.reference(arguments, nudged, dtype=dtype, close=narrowest(inputs, state))
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            return exact, after
        if not draws.same_shapes(tensor_leaves(outputs), tensor_leaves(exact)):
            return exact, after
        return outputs, buffers


def narrowest(inputs: Tree, state: Tree) -> str:
    """The float dtype with the fewest digits among inputs, parameters and buffers."""
    held = [*tensor_leaves(inputs), *tensor_leaves(state["params"]), *tensor_leaves(state["buffers"])]
    return max((leaf.dtype for leaf in held if leaf.is_float), key=UNIT.__getitem__, default="float32")


def alias_pairs(info: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """(leaf path, what it shares memory with) as `cpu_worker` and the task host report them."""
    return frozenset((str(a), str(b)) for a, b in info.get("aliases") or ())


def _raw(tensor: HostTensor) -> Any:
    return np.ascontiguousarray(tensor.bits()).view(np.uint8)


def _zip_rules(path: str, native: Tree, exact: Tree, moved: Tree, make: Any) -> Any:
    if isinstance(native, HostTensor):
        return make(path, native, exact, moved)
    if isinstance(native, (list, tuple)):
        parts = zip(native, exact, moved, strict=True)
        return tuple(_zip_rules(f"{path}[{i}]", *part, make) for i, part in enumerate(parts))
    if isinstance(native, dict):
        return {k: _zip_rules(f"{path}[{k!r}]", v, exact[k], moved[k], make) for k, v in native.items()}
    return native


def _with_gather(tree: Any, sources: Sequence[Any]) -> Any:
    """Index leaves learn how they select, from the inputs and the float outputs."""
    usable = [s for s in (*sources, *(r.expected for r in rules(tree) if r.element is not None)) if s.ndim]

    def one(node: Any) -> Any:
        if isinstance(node, Rule):
            if node.element is not None:
                return node
            gather = find_gather(node.expected, usable)
            judged = node.judged if gather is None or node.judged is None else node.judged | gather.ties()
            return replace(node, gather=gather, judged=judged)
        if isinstance(node, tuple):
            return tuple(map(one, node))
        return {k: one(v) for k, v in node.items()} if isinstance(node, dict) else node

    return one(tree)
