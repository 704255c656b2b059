"""Draws the cases of one task: inputs of a family, a state table, and the expectation."""

from __future__ import annotations

import secrets
import threading
from abc import abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.float8 import FLOAT8
from hipwright.records import TolerancePolicy
from hipwright.task import TaskHandle
from hipwright.tensors import Tree, tensor_leaves
from hipwright.verify import inputs as draws
from hipwright.verify.blockwise.screen import finite_part
from hipwright.verify.expectation import Expectations
from hipwright.verify.expected import Expected, Rule, rules
from hipwright.verify.inputs.written import folded_inputs, overlapping, written_paths
from hipwright.verify.tolerance import LARGEST, NEAR_CONSTANT, UNIT

MUTATED = "mutated"  # new inputs and new parameters, for a second call in the same process
TRIALS = tuple(f"trial{i}" for i in range(1, 6))  # KernelBench's five draws

SCALES = (1e3, 1e2, 1e1)  # the largest magnitude of the `scales` family, tried in turn as that of `large`
LOST = 0.05  # budget over value, at the median, from which on large values show nothing
SHARED_ELEMENTS = 1 << 24  # of inputs that are drawn to see whether a written one overlaps another
USUAL, OTHER, WHOLE = range(3)
"""Variants of the model's state: usual; of the second call, with other parameters; with whole numbers in them."""


@dataclass(frozen=True, eq=False)
class VerificationCase:
    """One set of inputs with its expectation.

    draw: the seed of torch's generator just before a call, where the reference draws random numbers, else None.
    rejected: why it cannot be judged; degenerate: why it proves nothing; rejects: the trivial answers that fail it.
    """

    workload: str
    family: str
    seed: int
    inputs: Tree
    state: Tree
    expected: Expected
    rejected: str = ""
    degenerate: str = ""
    rejects: frozenset[str] = frozenset()
    seconds: float = 0.0
    draw: int | None = None

    @property
    def name(self) -> str:
        """workload/family, as in messages."""
        return f"{self.workload}/{self.family}"

    @property
    def written(self) -> tuple[str, ...]:
        """The inputs that the reference writes to, by path."""
        return written_paths(self.expected.tree.get("buffers") or ())

    @property
    def settings(self) -> dict[str, Any]:
        """What every call on this case is told (`WatchedCandidate.run`)."""
        drawn = {} if self.draw is None else {"draw": self.draw}
        return {**drawn, "written": list(self.written)} if self.written else drawn

    @property
    def counts(self) -> bool:
        """Whether it is evidence."""
        return not (self.rejected or self.degenerate)


@dataclass(frozen=True)
class SideEffects:
    """What the reference does beside its outputs.

    draws: it draws random numbers; on_host: by Python's or NumPy's generator; seeds: it seeds torch's generator itself;
    written: inputs that it writes to; shared: one of those and another input that holds an element of it.
    """

    draws: bool
    on_host: bool
    seeds: bool
    written: tuple[str, ...]
    shared: tuple[str, str] | None


@dataclass(frozen=True)
class _Attempt:
    """One way to draw a case. values: the family of its inputs; large: scale of large values; state: its variant."""

    values: str
    large: float = 1.0
    state: int = USUAL


@dataclass
class CaseDraws:
    """Draws and states of one task. seed: of all of them; None draws a secret one. policy: the task's own when None."""

    handle: TaskHandle
    seed: int | None = None
    policy: TolerancePolicy | None = None

    def __post_init__(self) -> None:
        if self.seed is None:
            self.seed = secrets.randbits(48)
        self.policy = self.policy or self.handle.task.tolerance
        self._expectations = Expectations(self.handle, self.policy, self._seed("nudge"))
        self._lock = threading.RLock()
        self._domains: dict[str, draws.Domain] = {}
        self._known_special: draws.Special | None = None
        self._states: dict[int, Tree] = {}
        self._suited: dict[str, int] = {}
        self._known_effects: SideEffects | None = None

    @abstractmethod
    def first_workload(self) -> str:
        """The workload on which the reference is watched."""

    @property
    def kernelbench(self) -> bool:
        """True under KernelBench's own rule."""
        assert self.policy is not None
        return self.policy.mode == "kernelbench"

    @property
    def special(self) -> draws.Special:
        """What the reference's own calls say about values."""
        with self._lock:
            if self._known_special is None:
                first = self.first_workload()
                told = self.handle.special(self._base(first, "given"), self._state(USUAL))
                writes = bool(self.side_effects.written)
                self._known_special = replace(draws.Special.of(told), writes=writes)
            return self._known_special

    @property
    def side_effects(self) -> SideEffects:
        """What the reference does beside its outputs, on the first workload."""
        with self._lock:
            if self._known_effects is None:
                given = self._base(self.first_workload(), "given")
                info = self.handle.reference(given, self._state(USUAL), dtype="native")[2]
                written = tuple(map(str, info.get("mutated_inputs") or ()))
                self._known_effects = SideEffects(
                    draws=bool(info.get("random")),
                    on_host=bool(info.get("host_random")),
                    seeds=bool(info.get("seeds_itself")),
                    written=written,
                    shared=self._shared(written),
                )
            return self._known_effects

    def _shared(self, written: tuple[str, ...]) -> tuple[str, str] | None:
        """A written input and another one that overlap in the task's own inputs, as far as these are small."""
        own = [w for w in self.handle.task.workloads if w.origin != "derived"] if written else []
        small = [w.name for w in own if sum(prod(spec.shape) for spec in w.specs) <= SHARED_ELEMENTS]
        return next((pair for name in small if (pair := overlapping(self._base(name, "given"), written))), None)

    @property
    def state(self) -> Tree:
        """The state table of every case but `MUTATED`."""
        with self._lock:
            return self._state(USUAL)

    def given_inputs(self, workload: str) -> Tree:
        """The inputs of a workload's first family, without an expectation."""
        return self._base(workload, TRIALS[0] if self.kernelbench else "given")

    def seed_of(self, *parts: object) -> int:
        """A seed derived from this oracle's own, one for each name."""
        return self._seed(*parts)

    def _seed(self, *parts: object) -> int:
        return int(draws.generator(self.seed or 0, *parts).integers(0, 2**31))

    def _base(self, workload: str, family: str) -> Tree:
        return self.handle.inputs(workload, self._seed("inputs", workload, family))

    def _state(self, variant: int) -> Tree:
        if variant not in self._states:
            if variant == WHOLE:
                self._states[WHOLE] = draws.whole_state(self._state(OTHER), self._seed("whole"))
                return self._states[WHOLE]
            seed = self._seed("state", variant)
            state = self.handle.init_state(seed)
            if not self.kernelbench:
                other = self.handle.init_state(self._seed("twin", variant))
                state = draws.randomise_state(state, other, seed, str(variant))
            self._states[variant] = state
        return self._states[variant]

    def _domain(self, workload: str) -> draws.Domain:
        """The domain of a workload's inputs; restricted where signed values break the reference on the first workload
        and the given ones do not."""
        if workload not in self._domains:
            given = self._base(workload, "given")
            domain = draws.observe(given, self._base(workload, "twin"))
            self._domains[workload] = domain
            first = self.first_workload()
            if workload != first:
                self._domains[workload] = replace(domain, restricted=self._domain(first).restricted)
            elif any(not leaf.fixed and leaf.low >= 0 for leaf in domain.leaves):
                usual = self._nonfinite(given)
                signed = draws.make(given, "normal", domain, self.seed or 0, workload)
                if self._nonfinite(signed) > usual:
                    self._domains[workload] = replace(domain, restricted=True)
        return self._domains[workload]

    def _nonfinite(self, inputs: Tree) -> float:
        """The share of NaN and Inf among the fp64 reference's float outputs; 2 when it raises."""
        try:
            outputs = self.handle.reference(inputs, self._state(USUAL))[0]
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            return 2.0
        values = [t.to_f64() for t in tensor_leaves(outputs) if t.is_float]
        total = sum(v.size for v in values)
        return sum(int((~np.isfinite(v)).sum()) for v in values) / total if total else 0.0

    def drawn_case(self, workload: str, family: str) -> VerificationCase:
        """The case, without what it proves: the first of the attempts that can be judged, or the last."""
        attempts = self._attempts(family)
        start = 0 if workload == self.first_workload() else self._suited.get(family, 0)
        for number, attempt in enumerate(attempts[start:], start):
            case = self._attempt(workload, family, attempt)
            if not case.rejected or number == len(attempts) - 1:
                break
        if workload == self.first_workload():
            self._suited[family] = number  # no larger scale is tried on other workloads
        return case

    def _attempts(self, family: str) -> tuple[_Attempt, ...]:
        """What to try in turn: `large` values that the reference can represent; for the second call whole numbers."""
        if family == "large":
            return tuple(_Attempt(family, scale) for scale in draws.LARGE_SCALES)
        if family == "scales":
            return tuple(_Attempt(family, scale) for scale in SCALES)
        if family in draws.MIXED_AXES:  # beside the largest all other slices would vanish in a sum
            return tuple(_Attempt(family, scale) for scale in draws.LARGE_SCALES[1:])
        if family == MUTATED:
            return _Attempt("exact", state=WHOLE), _Attempt("normal", state=OTHER)
        return (_Attempt(family),)

    def drawn_values(self, workload: str, family: str) -> Expected | None:
        """What the reference gives on the inputs of a family, without budgets; None where it refuses them. Drawn as on
        the first workload, as far as the family was drawn there.
        """
        attempts = self._attempts(family)
        attempt = attempts[self._suited.get(family, len(attempts) - 1)]
        try:
            inputs = self._inputs(workload, family, attempt)
            return self._expectations.drawing(self._draw(workload, family)).values(inputs, self._state(attempt.state))
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            return None

    def _draw(self, workload: str, family: str) -> int | None:
        """The seed of torch's generator just before a call; None where the reference draws no numbers."""
        return self._seed("draw", workload, family) if self.side_effects.draws else None

    def _inputs(self, workload: str, family: str, attempt: _Attempt, again: int | None = None) -> Tree:
        """The inputs of one attempt; `again`: those of another draw of their kind."""
        if again is None:
            base, seed = self._base(workload, family), (self.seed or 0) + (family == MUTATED)
        else:
            base = self.handle.inputs(workload, self._seed("again", workload, family, again))
            seed = self._seed("again", again)
        if family in ("given", *TRIALS):
            return base
        domain = replace(self._domain(workload), large=attempt.large)
        return draws.make(base, attempt.values, domain, seed, workload, self.special)

    def _attempt(self, workload: str, family: str, attempt: _Attempt) -> VerificationCase:
        seed, form = self._seed("inputs", workload, family), attempt.values
        own_draw = family in ("given", *TRIALS)
        inputs, state = self._inputs(workload, family, attempt), self._state(attempt.state)
        draw = self._draw(workload, family)
        blank = VerificationCase(workload, family, seed, inputs, state, Expected({}), draw=draw)
        expectations = self._expectations.drawing(draw)

        def redraw(number: int) -> Tree:
            return self._inputs(workload, family, attempt, again=number)

        try:
            if form == "exact":
                expected = expectations.exact(inputs, state)
                if expected is None:
                    return replace(blank, rejected="the reference rounds on whole numbers")
            else:
                still = self.special.floats if form == "named_values" else ()
                near_constant = form in NEAR_CONSTANT
                expected = expectations.of(inputs, state, redraw, near_constant=near_constant, still=still)
        except HipwrightError as error:
            if isinstance(error, InfrastructureError) or own_draw:
                raise
            return replace(blank, rejected=f"the reference refuses these inputs: {error.message[:200]}")
        case = replace(blank, expected=expected, rejected=self._unfit(expected, family))
        if folded := folded_inputs(inputs, case.written):
            case = replace(case, rejected=f"the reference writes to {folded}, of which elements share memory")
        return case

    def _unfit(self, expected: Expected, family: str) -> str:
        """Why a family's values do not suit the reference: they exceed the dtype's range, or its baseline is lost in
        them; "" where they do.
        """
        infinite = family == "infinities"  # nan_to_num makes the largest numbers of them
        for rule in rules(expected.tree) if family != "given" else ():
            if rule.element is None or not rule.expected.size:
                continue
            finite, largest = finite_part(rule.expected)
            if largest > _range(rule.spec.dtype) and not infinite:
                return f"the reference leaves the range of {rule.spec.dtype}"
            if finite < 0.1:
                return "the reference gives NaN or Inf nearly everywhere"
            if rule.judged is not None and rule.judged.mean() < (0.9 if infinite else 0.99):
                return "the honest baseline overflows"
            if family == "large" and _lost(rule):
                return "the honest baseline loses the result"
        return ""


def _lost(rule: Rule) -> bool:
    """Whether the budgets of most elements exceed `LOST` of them."""
    assert rule.element is not None
    large = np.abs(rule.expected)
    shown = np.isfinite(large) & (large > 0)
    return bool(shown.any() and np.median(rule.element[shown] - LOST * large[shown]) > 0)


def _range(dtype: str) -> float:
    """The largest result that suits a dtype: room for what is computed before; 8-bit floats are filled to their end."""
    return LARGEST[dtype] * (1 + UNIT[dtype]) if dtype in FLOAT8 else LARGEST[dtype] / 4
