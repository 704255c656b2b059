"""Finds degenerate cases, which trivial outputs would pass, so that passing them proves nothing.

A case is degenerate where zeros, a constant, a returned input, or the outputs of another seed would pass, and where the
output is empty (docs/verification.md, A2 and A3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hipwright.tensors import HostTensor, tensor_leaves
from hipwright.verify.compare import compare_leaf
from hipwright.verify.expected import Expected, Rule, rules
from hipwright.verify.inputs import with_values


def degenerate(expected: Expected, inputs: Any, other: Expected | None) -> str:
    """Why the case is no evidence, or "" where it is. other: the expectation for other input values."""
    evidence = [rule for rule in rules(expected.tree) if rule.evidence and rule.expected.size]
    if not evidence:
        return "every output is empty"
    if all(rule.judged is not None and not rule.judged.any() for rule in evidence):
        return "the honest baseline disagrees with the fp64 reference everywhere"
    sources = tensor_leaves(inputs)
    others = rules(other.tree) if other is not None else []
    if all(_passes(np.zeros_like(rule.expected), rule) for rule in evidence):
        return "zeros would pass"
    # a single element is always a constant: only other inputs show whether it is evidence
    if any(rule.expected.size > 1 for rule in evidence) and all(_passes(_constant(rule), rule) for rule in evidence):
        return "a constant would pass"
    if all(_identity_passes(rule, sources) for rule in evidence):
        return "an input handed back would pass"
    if others and all(_other_passes(rule, others) for rule in evidence):
        return "the outputs for other inputs would pass"
    return ""


def _passes(values: Any, rule: Rule) -> bool:
    """Whether a tensor of these values (float64, or bits for an exact rule) is within budget."""
    tensor = _tensor(values, rule)
    return tensor is not None and compare_leaf(tensor, rule).ok


def _tensor(values: Any, rule: Rule) -> HostTensor | None:
    if rule.element is None:
        return HostTensor.of(np.asarray(values).astype(rule.expected.dtype), rule.spec.dtype)
    blank = HostTensor.of(np.zeros(rule.spec.shape, np.float64))
    return with_values(blank, np.asarray(values, dtype=np.float64))


def _constant(rule: Rule) -> Any:
    """The constant that most likely passes: the mean of a float leaf, the most frequent value of an exact one."""
    if rule.element is None:
        values, counts = np.unique(rule.expected, return_counts=True)
        return np.full_like(rule.expected, values[counts.argmax()])
    finite = rule.expected[np.isfinite(rule.expected)]
    return np.full(rule.expected.shape, finite.mean() if finite.size else 0.0)


def _identity_passes(rule: Rule, sources: Sequence[HostTensor]) -> bool:
    same = [s for s in sources if s.numel == rule.expected.size and s.is_float == (rule.element is not None)]
    for source in same:
        values = source.to_f64() if rule.element is not None else source.bits()
        if _passes(np.ascontiguousarray(values).reshape(rule.spec.shape), rule):
            return True
    return False


def _other_passes(rule: Rule, others: Sequence[Rule]) -> bool:
    same_leaf = [s for s in others if s.path == rule.path and s.spec.shape == rule.spec.shape]
    return bool(same_leaf) and _passes(same_leaf[0].expected, rule)
