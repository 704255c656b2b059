"""Whether a program that passed is wrong: decided by machine code, by construction, or by an exact comparison.

The comparison runs the verified program and the other one without checks, on inputs that the verifier has not drawn:
all families at all shapes under another seed, values of other scales, integers whose result a right program gives
without rounding, NaN and infinity, zeros, other orders of blocks and other contents of fresh memory, a second call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

import numpy as np

from hipwright.audit.differential import Label, amd_code_hash, clear_difference, outputs, plan_form, session
from hipwright.errors import HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.tensors import HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.verify.bit_differences import first_difference
from hipwright.verify.candidate import POISON_A, POISON_B, POISON_C, CallReply, CandidateSession, Rejected, judge
from hipwright.verify.case_draws import VerificationCase
from hipwright.verify.expected import F64
from hipwright.verify.inputs import with_values
from hipwright.verify.oracle import MUTATED, Oracle

ANOTHER_SEED = 0x0DD5EED
SCALED_TRIALS, EXACT_TRIALS, SPECIAL_TRIALS, ORDER_TRIALS = 24, 8, 16, 4
HONEST_ROUNDING = {"float32": 1e-5, "float64": 1e-13, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative to the largest value: errors of kernels that add and multiply in another order."""


@dataclass(frozen=True)
class DifferentialTrial:
    """Inputs for both programs. reference: the float64 outputs where those decide."""

    case: VerificationCase
    reference: Tree | None = None


@dataclass
class ExactOracle:
    """Decides the truth of programs of one task. evaluator: of the task, opened."""

    evaluator: Evaluator
    _trials: list[DifferentialTrial] = field(default_factory=list, init=False)
    _replies: dict[str, list[CallReply | str]] = field(default_factory=dict, init=False)
    _oracle: Oracle | None = field(default=None, init=False)

    def truth(self, verified: str, other: str, *, certain: bool) -> Label:
        """wrong, equivalent (same code, or the same bits on every trial), or unclear (bits differ, within rounding)."""
        if certain:
            codes = [amd_code_hash(one, self.evaluator.cache) for one in (verified, other)]
            if codes[0] and codes[0] == codes[1] and plan_form(verified) == plan_form(other):
                return Label("equivalent", "the code objects and the plans are identical")
            return Label("wrong", "by construction")
        try:
            with session(self.evaluator, verified) as first, session(self.evaluator, other) as second:
                return self._compared(verified, first, second)
        except HipwrightError as error:
            return Label("unclear", f"it could not be run: {error.message}")

    def _compared(self, verified: str, first: CandidateSession, second: CandidateSession) -> Label:
        trials = self.trials()
        if verified not in self._replies:
            self._replies[verified] = [outputs(first, trial.case) for trial in trials]
        differs = 0
        for trial, one in zip(trials, self._replies[verified], strict=True):
            two = outputs(second, trial.case)
            if _same(one, two):
                continue
            differs += 1
            if why := _proof(trial, one, two):
                return Label("wrong", f"on {trial.case.name}: {why}")
        if why := self._orders(first, second) or self._later_calls(first, second):
            return Label("wrong", why)
        if not differs:
            return Label("equivalent", "the same bits on every trial")
        return self._judged(first, second) or Label("unclear", f"other bits on {differs} inputs, all within rounding")

    def trials(self) -> list[DifferentialTrial]:
        """Given and normal inputs of every shape, then drawn ones, the same for every program of the task."""
        if self._trials:
            return self._trials
        oracle = self.evaluator.oracle
        names = [planned.workload.name for planned in oracle.planned()]
        known = [oracle.case(name, family) for name in names for family in oracle.families(name)[:2]]
        bases = [case for case in known if not case.rejected]
        self._trials = [DifferentialTrial(case) for case in bases]
        rng = np.random.default_rng(ANOTHER_SEED)
        for number, base in enumerate(islice(cycle(bases), SCALED_TRIALS)):
            self._trials.append(
                DifferentialTrial(replace(base, family=f"scaled {number}", inputs=_scaled(base.inputs, rng)))
            )
        for number, base in enumerate(islice(cycle(bases), EXACT_TRIALS + SPECIAL_TRIALS)):
            exact = number < EXACT_TRIALS
            drawn = _integers(base.inputs, rng) if exact else _special(base.inputs, rng, self._nonfinite())
            try:
                reference = self.evaluator.handle.reference(drawn, base.state)[0]
            except HipwrightError:
                continue
            case = replace(base, family="integers" if exact else "special values", inputs=drawn)
            self._trials.append(DifferentialTrial(case, reference))
        return self._trials

    def _nonfinite(self) -> bool:
        """Whether the task's operators treat NaN and Inf apart, so that its inputs may hold them."""
        oracle = self.evaluator.oracle
        return "nan_values" in oracle.families(oracle.planned()[0].workload.name)

    def _judged(self, first: CandidateSession, second: CandidateSession) -> Label | None:
        """wrong where the second program fails the verifier's rule under another seed and the first does not."""
        if self._oracle is None:
            self._oracle = Oracle(self.evaluator.handle, seed=ANOTHER_SEED)
        for planned in self._oracle.planned():
            name = planned.workload.name
            for family in self._oracle.families(name):
                case = self._oracle.case(name, family)
                if not case.rejected and (why := _refusal(case, second)) and not _refusal(case, first):
                    return Label("wrong", why)
        return None

    def _orders(self, first: CandidateSession, second: CandidateSession) -> str:
        """Why the second program's result depends on the order of threads or on fresh memory and the first's not."""
        oracle = self.evaluator.oracle
        case = oracle.case(oracle.planned()[0].workload.name, "given")
        changed = []
        for one in (second, first):
            replies = [
                one.run(case, order="shuffle", seed=seed, poison=(POISON_A, POISON_B, POISON_C)[seed % 3])
                for seed in range(ORDER_TRIALS)
            ]
            changed.append(any(first_difference(replies[0], reply) for reply in replies[1:]))
            if not changed[0]:
                return ""
        return "" if changed[1] else "it depends on the order of threads or on fresh memory"

    def _later_calls(self, first: CandidateSession, second: CandidateSession) -> str:
        """Why the second program fails in later calls where the first does not."""
        oracle = self.evaluator.oracle
        case = oracle.case(oracle.planned()[0].workload.name, MUTATED)
        if case.rejected:
            return ""
        said = []
        for one in (second, first):
            one.mutate(case)
            said.append(next(filter(None, (_refusal(case, one, reuse=True) for _ in range(3))), ""))
            if not said[0]:
                return ""
        return "" if said[1] else f"in a later call: {said[0]}"


def _refusal(case: VerificationCase, program: CandidateSession, **header: bool) -> str:
    """Why the verifier's rule refuses a program on a case, "" where it does not."""
    try:
        judge(case, program.run(case, **header))
    except Rejected as rejected:
        return rejected.verdict.message
    return ""


def _same(one: CallReply | str, two: CallReply | str) -> bool:
    if isinstance(one, str) or isinstance(two, str):
        return one == two
    return first_difference(one, two) is None


def _proof(trial: DifferentialTrial, one: CallReply | str, two: CallReply | str) -> str:
    """Why the second program is wrong on a trial, "" where that is not shown."""
    if why := clear_difference(one, two, trial.case.inputs):
        return why
    if isinstance(one, str) or isinstance(two, str):
        return ""
    wanted = tensor_leaves(trial.reference) if trial.reference is not None else []
    found = [tensor_leaves(reply.tree["outputs"]) for reply in (one, two)]
    if len(wanted) != len(found[0]):
        return ""
    return next((why for leaf in zip(wanted, *found, strict=True) if (why := _inexact(*leaf))), "")


def _inexact(wanted: HostTensor, one: HostTensor, two: HostTensor) -> str:
    """Why the second is wrong where the first has the exact result, which needs no rounding, or its NaN and Inf."""
    if not (wanted.is_float and one.is_float) or wanted.shape != one.shape or one.shape != two.shape:
        return ""
    exact, first, second = wanted.to_f64(), one.to_f64(), two.to_f64()
    if np.array_equal(exact, first, equal_nan=True) and _apart(exact, second, one.dtype):
        return "the verified program's result is exact and this one's is not"
    for test in (np.isnan, np.isposinf, np.isneginf):
        if (test(exact) == test(first)).all() and not (test(exact) == test(second)).all():
            return "NaN or infinity is not where it belongs"
    return ""


def _apart(exact: F64, other: F64, dtype: str) -> bool:
    """Whether results differ by more than honest rounding of a kernel in this dtype."""
    finite = np.isfinite(exact)
    if not finite.any():
        return False
    reach = HONEST_ROUNDING.get(dtype, 0.0) * np.abs(exact[finite]).max()
    with np.errstate(invalid="ignore"):
        return not bool((np.abs(other[finite] - exact[finite]) <= reach).all())


def _scaled(inputs: Tree, rng: np.random.Generator) -> Tree:
    scale = float(10.0 ** rng.uniform(-3.0, 2.0))
    shift = float(rng.choice([0.0, 0.0, 1.0, -3.0])) * scale
    return _with(inputs, lambda t: rng.standard_normal(t.shape) * scale + shift, rng)


def _integers(inputs: Tree, rng: np.random.Generator) -> Tree:
    return _with(inputs, lambda t: rng.integers(-4, 5, t.shape).astype(np.float64), rng)


def _special(inputs: Tree, rng: np.random.Generator, nonfinite: bool) -> Tree:
    """Ordinary values with a few zeros, denormals and large values, NaN and infinities."""
    known = [0.0, -0.0, 1e-40, 1e4, 40.0, *((np.nan, np.inf, -np.inf) if nonfinite else ())]
    marks = [float(v) for v in rng.choice(known, size=2)]

    def values(tensor: HostTensor) -> F64:
        drawn = rng.standard_normal(tensor.shape)
        for mark in marks if drawn.size else ():
            drawn[tuple(rng.integers(0, n) for n in drawn.shape)] = mark
        return drawn

    return _with(inputs, values, rng)


def _with(inputs: Tree, values: Callable[[HostTensor], F64], rng: np.random.Generator) -> Tree:
    def one(tensor: HostTensor) -> HostTensor:
        if tensor.is_float:
            return with_values(tensor, values(tensor))
        return HostTensor.of(rng.permuted(tensor.bits().reshape(-1)).reshape(tensor.shape), tensor.dtype)

    return map_tensors(inputs, one)
