"""Compares a program with a verified one: equivalent, certainly different, or undecided.

The labels of an audit must come neither from the verifier under audit nor from the author of the variant. They come
from here: from the machine code, and from running both programs on the same inputs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np

from hipwright.audit.verifiers import LIMITS
from hipwright.errors import HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.program import parse
from hipwright.records import Build, Program
from hipwright.targets import REPRESENTATIVE
from hipwright.tensors import HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.toolchain.amd import offline as amdgpu
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.cpu import build as cpu
from hipwright.verify.bit_differences import first_difference
from hipwright.verify.candidate import POISON_A, CallReply, CandidateSession, Rejected
from hipwright.verify.case_draws import VerificationCase as Trial
from hipwright.verify.inputs import with_values
from hipwright.verify.tolerance import find_gather

EQUIVALENCE_TRIALS = 1000
LABEL_TRIALS = 40
CLEAR_DIFFERENCE = 0.05
"""Outputs certainly differ where they are apart by this share of the largest value, or where this share of integers
differs: no rounding and no tie of any dtype does that.
"""

Truth = Literal["equivalent", "wrong", "unclear", "stillborn"]
"""stillborn: no program, or one that does not compile: it tests no verifier."""


@dataclass(frozen=True)
class Label:
    """What a variant is, and how that is known."""

    truth: Truth
    why: str


def label(evaluator: Evaluator, text: str, other: str, trials: int = LABEL_TRIALS) -> Label:
    """Labels `other`, given that `text` is verified.

    equivalent: the same machine code and the same plan. wrong: on some input of the task's own kind its outputs are far
    from the verified program's, or it fails where that one runs. All else is unclear: a race, for instance, need not
    show.
    """
    try:
        parse(other)
    except HipwrightError as error:
        return Label("stillborn", error.message)
    codes = [amd_code_hash(one, evaluator.cache) for one in (text, other)]
    if not codes[1]:
        return Label("stillborn", f"it does not compile for {REPRESENTATIVE.name}")
    if codes[0] == codes[1] and plan_form(text) == plan_form(other):
        return Label("equivalent", "the code objects and the plans are identical")
    try:
        with session(evaluator, text) as first, session(evaluator, other) as second:
            for trial in islice(_given_trials(evaluator), trials):
                if why := clear_difference(outputs(first, trial), outputs(second, trial), trial.inputs):
                    return Label("wrong", f"on {trial.name}: {why}")
    except HipwrightError as error:
        return Label("unclear", f"it could not be run: {error.message}")
    return Label("unclear", f"no clear difference on {trials} inputs")


def equivalent(evaluator: Evaluator, text: str, other: str, trials: int = EQUIVALENCE_TRIALS) -> str:
    """Why two programs are equivalent, "" when they are not: the same gfx942 code, or the same bits on `trials`
    inputs.
    """
    codes = [amd_code_hash(one, evaluator.cache) for one in (text, other)]
    if codes[0] and codes[0] == codes[1]:
        return "the code objects are identical"
    with session(evaluator, text) as first, session(evaluator, other) as second:
        for trial in islice(_trials(evaluator), trials):
            if not _identical(outputs(first, trial), outputs(second, trial)):
                return ""
    return f"the outputs on {trials} inputs are bit-identical"


def amd_code_hash(text: str, cache: BuildCache) -> str:
    """The hash of the gfx942 code object, "" where it does not build."""
    parsed = parse(text)
    build = amdgpu.build(parsed.hip, REPRESENTATIVE.name, parsed.defines(), cache=cache)
    return build.blob if build.ok else ""


def session(evaluator: Evaluator, text: str) -> CandidateSession:
    """A process that runs a program on the cpu target, without the checks of a verification."""
    parsed = parse(text)
    build: Build = cpu.build(parsed.hip, parsed.defines(), wave=64, checked=False, cache=evaluator.cache)
    planned = evaluator.oracle.planned()[0].workload.name
    state = evaluator.oracle.case(planned, evaluator.oracle.families(planned)[0]).state
    so = evaluator.cache.path(build.blob)
    return CandidateSession(evaluator.candidates, Program(text=text), state, so=so, limits=LIMITS)


def _trials(evaluator: Evaluator) -> Iterator[Trial]:
    """An endless sequence of cases: the verifier's own, then all shapes in turn with new random values."""
    oracle = evaluator.oracle
    names = [p.workload.name for p in oracle.planned() if p.role != "full"] or [oracle.planned()[0].workload.name]
    known = [oracle.case(name, family) for name in names for family in oracle.families(name)]
    yield from (case for case in known if not case.rejected)
    bases = [case for case in known if case.family in ("given", "normal")]
    rng = np.random.default_rng(12345)
    while True:
        for base in bases:
            yield replace(base, inputs=_new_values(base.inputs, rng))


def _new_values(inputs: Tree, rng: np.random.Generator) -> Tree:
    scale = float(10.0 ** rng.uniform(-2.0, 1.5))
    shift = float(rng.choice([0.0, 0.0, 1.0, -3.0])) * scale

    def one(tensor: HostTensor) -> HostTensor:
        if not tensor.is_float:
            return HostTensor.of(rng.permuted(tensor.bits().reshape(-1)).reshape(tensor.shape), tensor.dtype)
        return with_values(tensor, rng.standard_normal(tensor.shape) * scale + shift)

    return map_tensors(inputs, one)


def outputs(session: CandidateSession, trial: Trial) -> CallReply | str:
    """The outputs of a program for an input, or the status of its failure, which both programs may share."""
    try:
        return session.run(trial, poison=POISON_A)
    except Rejected as rejected:
        return rejected.verdict.status
    except HipwrightError as error:
        return error.verdict().status


def _identical(a: CallReply | str, b: CallReply | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return first_difference(a, b) is None


def _given_trials(evaluator: Evaluator) -> Iterator[Trial]:
    """Inputs of the task's own kind: results of edge cases may differ for honest reasons."""
    return (trial for trial in _trials(evaluator) if trial.family in ("given", "normal"))


def clear_difference(verified: CallReply | str, other: CallReply | str, inputs: Tree = ()) -> str:
    """Why the second is certainly wrong, "" where that is not certain.

    inputs: those of both calls; indices may select another of equal values of theirs.
    """
    if isinstance(verified, str):
        return ""
    if isinstance(other, str):
        return f"it fails ({other}) where the verified program runs"
    verified_tensors, other_tensors = tensor_leaves(verified.tree), tensor_leaves(other.tree)
    if [(one.dtype, one.shape) for one in verified_tensors] != [(one.dtype, one.shape) for one in other_tensors]:
        return "dtypes or shapes of the outputs differ"
    for number, (one, two) in enumerate(zip(verified_tensors, other_tensors, strict=True)):
        if one.is_float and _differs_clearly(one.to_f64(), two.to_f64()):
            return f"output {number} is far from the verified program's"
        # a few integers may differ, since ties may be broken either way
        if one.is_float or not one.numel or (one.bits() != two.bits()).mean() <= CLEAR_DIFFERENCE:
            continue
        if not _same_choice(one, two, inputs):
            return f"output {number} has other values"
    return ""


def _same_choice(verified: HostTensor, other: HostTensor, inputs: Tree) -> bool:
    """Whether both hold indices that select equal values of an input."""
    sources = [leaf.to_f64() for leaf in tensor_leaves(inputs) if leaf.is_float]
    rule = find_gather(verified.bits(), sources)
    return rule is not None and bool(rule.same_choice(other.bits().astype(np.int64)).all())


def _differs_clearly(verified: np.ndarray, other: np.ndarray) -> bool:
    finite = np.isfinite(verified)
    if not finite.any():
        return False
    reach = CLEAR_DIFFERENCE * (np.abs(verified[finite]).max() or 1.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(other[finite] - verified[finite]) <= reach
    return not bool(near.all())


def plan_form(text: str) -> str:
    """All of a program except its HIP source."""
    parsed = parse(text)
    functions = {name: ast.dump(tree) for name, tree in sorted(parsed.functions.items())}
    constants = {name: ast.dump(tree) for name, tree in sorted(parsed.constants.items())}
    knobs = {name: (knob.default, knob.choices) for name, knob in sorted(parsed.knobs.items())}
    return repr((functions, constants, knobs))
