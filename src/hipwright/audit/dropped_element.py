"""How probably the verifier notices one input element left out, by task and shape.

An element at a random place reads as 0; the float64 reference then gives the best result that a program can have which
leaves it out. It is noticed where that result, in the dtypes of the outputs, is outside the budgets of any family.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hipwright.errors import HipwrightError
from hipwright.evaluation import Evaluator
from hipwright.evaluation.figures import wilson
from hipwright.tensors import BITS, HostTensor, Tree, map_tensors, tensor_leaves, to_bf16_bits
from hipwright.verify.compare import compare_leaf
from hipwright.verify.expected import Rule, rules
from hipwright.verify.inputs import with_values
from hipwright.verify.oracle import VerificationCase

PLACES = 8
"""Random places that are tried at each shape."""


@dataclass(frozen=True)
class DroppedElement:
    """The places of one shape whose element, left out, was noticed. elements: of all float inputs together."""

    workload: str
    shapes: tuple[tuple[int, ...], ...]
    elements: int
    places: int
    noticed: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the probability."""
        return wilson(self.noticed, self.places)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "workload": self.workload,
            "shapes": [list(shape) for shape in self.shapes],
            "elements": self.elements,
            "places": self.places,
            "noticed": self.noticed,
            "interval": list(self.interval),
        }


def dropped_elements(evaluator: Evaluator, places: int = PLACES) -> list[DroppedElement]:
    """A row for each shape of the task's verification; [] for tasks without float inputs or outputs."""
    oracle = evaluator.oracle
    rng = np.random.default_rng(oracle.seed_of("dropped element"))
    found = []
    for planned in oracle.planned():
        name = planned.workload.name
        first = oracle.case(name, oracle.families(name)[0])
        shapes = tuple(tensor.shape for tensor in tensor_leaves(first.inputs) if tensor.is_float)
        elements = sum(map(prod, shapes))
        if not elements:
            continue
        chosen = rng.choice(elements, size=min(places, elements), replace=False)
        noticed = sum(_noticed(evaluator, name, int(place)) for place in chosen)
        found.append(DroppedElement(name, shapes, elements, len(chosen), noticed))
    return found


def _noticed(evaluator: Evaluator, workload: str, place: int) -> bool:
    """Whether a family at this shape rejects the result without the element at this place of all float inputs."""
    oracle = evaluator.oracle
    cases = (oracle.case(workload, family) for family in oracle.families(workload))
    return any(_rejected(evaluator, case, place) for case in cases if not case.rejected)


def _rejected(evaluator: Evaluator, case: VerificationCase, place: int) -> bool:
    try:
        outputs = evaluator.handle.reference(_without(case.inputs, place), case.state)[0]
    except HipwrightError:
        return True
    wanted, got = rules(case.expected.tree["outputs"]), tensor_leaves(outputs)
    if len(wanted) != len(got):
        return False
    return any(not compare_leaf(_rounded(one, rule), rule).ok for one, rule in zip(got, wanted, strict=True))


def _without(inputs: Tree, place: int) -> Tree:
    """The inputs with 0 at one place, counted over all float tensors."""
    left = place

    def one(tensor: HostTensor) -> HostTensor:
        nonlocal left
        if not tensor.is_float:
            return tensor
        at, left = left, left - tensor.numel
        if not 0 <= at < tensor.numel:
            return tensor
        values = tensor.to_f64().copy()
        values.reshape(-1)[at] = 0.0
        return with_values(tensor, values)

    return map_tensors(inputs, one)


def _rounded(tensor: HostTensor, rule: Rule) -> HostTensor:
    """A float64 result in the output's dtype."""
    if not tensor.is_float or tensor.dtype == rule.spec.dtype:
        return tensor
    values = tensor.to_f64()
    with np.errstate(over="ignore"):
        bits = to_bf16_bits(values) if rule.spec.dtype == "bfloat16" else values.astype(BITS[rule.spec.dtype])
    return HostTensor.of(bits, rule.spec.dtype)
