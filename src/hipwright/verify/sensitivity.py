"""How surely verification notices one element left out: the share of dropped elements that fall outside the budget.

An element of an input is set to zero, as a program that skips it would see it, and the fp64 reference runs on what is
left. The share of drawn elements whose loss some family's budget does not allow is the detection probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.tensors import HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.verify.compare import compare_leaf
from hipwright.verify.expected import rules
from hipwright.verify.inputs import generator, with_values
from hipwright.verify.oracle import Oracle, VerificationCase

FAMILIES = ("exact", "normal", "spikes")


@dataclass(frozen=True)
class DroppedElement:
    """Of `tried` elements of a workload's inputs that matter, `found` fall outside a budget when left out.

    of: elements of the float inputs; workload: where.
    """

    workload: str
    of: int
    tried: int
    found: int

    @property
    def share(self) -> float:
        """The detection probability; 1 where no element matters."""
        return self.found / self.tried if self.tried else 1.0


def dropped_element(
    oracle: Oracle, workload: str, samples: int = 24, families: Sequence[str] = FAMILIES
) -> DroppedElement:
    """Detection of one dropped element of a workload's float inputs, each sample a random one, under these families.

    An element whose loss changes no result in fp64 under any family is not counted. Raises infrastructure errors.
    """
    known = [f for f in families if f in oracle.families(workload)]
    cases = [case for case in (oracle.case(workload, family) for family in known) if not case.rejected]
    leaves = tensor_leaves(cases[0].inputs) if cases else []
    floats = [number for number, leaf in enumerate(leaves) if leaf.is_float and leaf.numel]
    rng = generator(oracle.seed or 0, "dropped", workload)
    tried = found = of = 0
    for _ in range(samples if floats else 0):
        leaf = int(rng.choice(floats))
        of = leaves[leaf].numel
        at = int(rng.integers(of))
        seen = [_without(oracle, case, leaf, at) for case in cases]
        tried += any(outcome is not None for outcome in seen)
        found += any(seen)
    return DroppedElement(workload, of, tried, found)


def _without(oracle: Oracle, case: VerificationCase, leaf: int, at: int) -> bool | None:
    """Whether the result without one element is outside the budget; None where the element changes nothing."""
    try:
        outputs, _, _ = oracle.handle.reference(_dropped(case.inputs, leaf, at), case.state)
    except HipwrightError as error:
        if isinstance(error, InfrastructureError):
            raise
        return True
    changed = False
    for tensor, rule in zip(tensor_leaves(outputs), rules(case.expected.tree["outputs"]), strict=True):
        if tensor.numel and not np.array_equal(tensor.to_f64(), rule.expected.astype(np.float64), equal_nan=True):
            changed = True
            if tensor.shape != rule.spec.shape or not compare_leaf(_as(tensor, rule.spec.dtype), rule).ok:
                return True
    return False if changed else None


def _as(tensor: HostTensor, dtype: str) -> HostTensor:
    """An fp64 result for a rule: float leaves as they are, others in the rule's dtype."""
    return tensor if tensor.is_float or tensor.dtype == dtype else HostTensor.of(tensor.bits(), dtype)


def _dropped(inputs: Tree, leaf: int, at: int) -> Tree:
    numbers = iter(range(1 << 30))

    def one(tensor: HostTensor) -> HostTensor:
        if next(numbers) != leaf:
            return tensor
        values = tensor.to_f64().copy()
        values.reshape(-1)[at] = 0.0
        return with_values(tensor, values)

    return map_tensors(inputs, one)
