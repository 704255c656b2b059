"""Finds degenerate cases, which trivial outputs would pass, so that passing them proves nothing.

A case is degenerate where zeros, a constant, a returned input, or the outputs of another seed would pass, and where the
output is empty (docs/verification.md, A2 and A3). A shifted or truncated result that passes makes a case no evidence
against those faults alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hipwright.tensors import HostTensor, tensor_leaves
from hipwright.verify.blockwise.screen import surely_wrong
from hipwright.verify.compare import compare_leaf
from hipwright.verify.expected import Expected, Rule, rules
from hipwright.verify.inputs import with_values

TRIVIAL = ("zeros", "constant", "input", "other_inputs", "shifted", "truncated")
"""Answers that take no work: all zeros, the best constant, an input handed back, the result for other inputs, the right
result moved by one element, the right result whose last eighth is zero."""
MIN_DISCRIMINATING = 3
"""Judged cases, at shapes of the task's kind, that must reject each trivial answer for a pass."""
_WHY = {
    "zeros": "zeros would pass",
    "constant": "a constant would pass",
    "input": "an input handed back would pass",
    "other_inputs": "the outputs for other inputs would pass",
}


@dataclass(frozen=True)
class CaseEvidence:
    """What a case proves. degenerate: why it proves nothing, or ""; rejects: the answers of `TRIVIAL` that fail it."""

    degenerate: str
    rejects: frozenset[str]


def case_evidence_of(expected: Expected, inputs: Any, other: Expected | None) -> CaseEvidence:
    """What the case proves. other: the expectation for other input values."""
    evidence = [rule for rule in rules(expected.tree) if rule.evidence and rule.expected.size]
    if not evidence:
        return CaseEvidence("every output is empty", frozenset())
    if all(rule.judged is not None and not rule.judged.any() for rule in evidence):
        return CaseEvidence("the honest baseline disagrees with the fp64 reference everywhere", frozenset())
    sources = tensor_leaves(inputs)
    others = rules(other.tree) if other is not None else []
    single = all(rule.expected.size == 1 for rule in evidence)  # its constant, shift and end are the result itself
    passing = {
        "zeros": all(_constant_passes(0, rule) for rule in evidence),
        "constant": not single and all(_constant_passes(_usual_value(rule), rule) for rule in evidence),
        "input": all(_identity_passes(rule, sources) for rule in evidence),
        "other_inputs": bool(others) and all(_other_passes(rule, others) for rule in evidence),
        "shifted": not single and all(_shifted_passes(rule) for rule in evidence),
        "truncated": not single and all(_truncated_passes(rule) for rule in evidence),
    }
    why = next((text for answer, text in _WHY.items() if passing[answer]), "")
    return CaseEvidence(why, frozenset(answer for answer in TRIVIAL if not passing[answer]))


def _passes(values: Callable[[], Any], rule: Rule, screened: Callable[[slice], Any] | None = None) -> bool:
    """Whether a tensor of these values (float64, or bits for an exact rule) is within budget.

    screened: some of the same values, flat, which nearly always show that they are not, before all are made.
    """
    if screened is not None and surely_wrong(screened, rule):
        return False
    tensor = _tensor(values(), rule)
    return tensor is not None and compare_leaf(tensor, rule).ok


def _tensor(values: Any, rule: Rule) -> HostTensor | None:
    if rule.element is None:
        return HostTensor.of(np.asarray(values).astype(rule.expected.dtype), rule.spec.dtype)
    blank = HostTensor.of(np.zeros(rule.expected.shape, np.float64))
    return with_values(blank, np.asarray(values, dtype=np.float64))


def _constant_passes(value: Any, rule: Rule) -> bool:
    blank = rule.expected.dtype.type(value)
    shape = rule.expected.shape
    return _passes(lambda: np.full(shape, blank), rule, lambda place: np.full(place.stop - place.start, blank))


def _usual_value(rule: Rule) -> Any:
    """The constant that most likely passes: the mean of a float leaf, the most frequent value of an exact one."""
    if rule.element is None:
        values, counts = np.unique(rule.expected, return_counts=True)
        return values[counts.argmax()]
    flat = rule.expected.reshape(-1)
    finite = np.isfinite(flat)
    kept = flat if finite.all() else flat[finite]
    return kept.mean() if kept.size else 0.0


def _shifted_passes(rule: Rule) -> bool:
    flat, shape = rule.expected.reshape(-1), rule.expected.shape

    def shifted(place: slice) -> Any:
        return flat.take(np.arange(place.start - 1, place.stop - 1))  # the last one comes first

    return _passes(lambda: np.roll(flat, 1).reshape(shape), rule, shifted)


def _truncated_passes(rule: Rule) -> bool:
    flat = rule.expected.reshape(-1)
    kept = flat.size - max(flat.size // 8, 1)

    def cut(place: slice) -> Any:
        values = flat[place].copy()
        values[max(kept - place.start, 0) :] = 0
        return values

    return _passes(lambda: cut(slice(0, flat.size)).reshape(rule.expected.shape), rule, cut)


def _identity_passes(rule: Rule, sources: Sequence[HostTensor]) -> bool:
    size, floats = rule.expected.size, rule.element is not None
    for source in sources:
        if source.is_float != floats or prod(source.values_shape) != size:
            continue
        values = source.to_f64() if floats else source.bits()
        if _array_passes(np.ascontiguousarray(values).reshape(rule.expected.shape), rule):
            return True
    return False


def _other_passes(rule: Rule, others: Sequence[Rule]) -> bool:
    same_leaf = [s for s in others if s.path == rule.path and s.spec.shape == rule.spec.shape]
    return bool(same_leaf) and _array_passes(same_leaf[0].expected, rule)


def _array_passes(values: Any, rule: Rule) -> bool:
    flat = values.reshape(-1)
    return _passes(lambda: values, rule, lambda place: flat[place])
