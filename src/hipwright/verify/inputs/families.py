"""The input families: which apply to a task's inputs, and the inputs of each.

A family rewrites the float leaves of a base tree; integer and bool leaves stay as `get_inputs` made them (the caller
draws the base under another seed for each family), except where a family is about them. Values come from a
counter-based generator keyed by (seed, workload, family, leaf), so any case can be drawn again alone.
"""

from __future__ import annotations

import numpy as np

from hipwright.float8 import FLOAT8
from hipwright.tensors import COMPLEX, HostTensor, Tree, map_tensors, tensor_leaves
from hipwright.verify.inputs.domain import Domain, into_domain
from hipwright.verify.inputs.layouts import LAYOUTS, with_values
from hipwright.verify.inputs.special import SPECIAL, Special, special_leaf
from hipwright.verify.inputs.values import FLOAT_FAMILIES, MIXED_AXES, LeafForm, Rng, generator, mixed

MASK_FAMILIES = {"masks_on": True, "masks_off": False}
FAMILIES = ("given", *FLOAT_FAMILIES, *MIXED_AXES, *LAYOUTS, *MASK_FAMILIES, *SPECIAL)


def applicable(base: Tree, domain: Domain, special: Special = Special()) -> tuple[str, ...]:  # noqa: B008
    """The families that change these inputs: layouts where there are tensors, masks only where there are bool leaves,
    special values where the reference names some.
    """
    found = ["given"]
    tensors = tensor_leaves(base)
    rank = max((len(t.shape) for t in tensors), default=0)
    if any(leaf.fixed is False for leaf in domain.leaves):
        found += FLOAT_FAMILIES
        found += [family for family in MIXED_AXES if family != "mixed_middle" or rank > 2]
    if tensors:
        found += [family for family in LAYOUTS if _lays_out(family, rank)]
    if any(t.dtype == "bool" for t in tensors):
        found += MASK_FAMILIES
    return (*found, *special.families(base, domain))


def _lays_out(family: str, rank: int) -> bool:
    """Whether a layout differs from the others for tensors of at most this rank."""
    return rank >= {"permuted": 2, "transposed": 3, "expanded": 1}.get(family, 0)


def make(base: Tree, family: str, domain: Domain, seed: int, workload: str, special: Special = Special()) -> Tree:  # noqa: B008
    """`base` with the family applied to its leaves."""
    if family == "given":
        return base
    counter = iter(range(len(domain.leaves)))
    copies: dict[int, HostTensor] = {}

    def one(tensor: HostTensor) -> HostTensor:
        index = next(counter)
        key = id(tensor)
        if key not in copies:
            copies[key] = _leaf(tensor, domain, index, family, generator(seed, workload, family, index), special)
        return copies[key]

    return map_tensors(base, one)


def _leaf(tensor: HostTensor, domain: Domain, index: int, family: str, rng: Rng, special: Special) -> HostTensor:
    if family in MASK_FAMILIES:
        if tensor.dtype == "bool":
            return HostTensor.of(np.full(tensor.shape, MASK_FAMILIES[family]))
        return tensor
    if family in SPECIAL:
        return special_leaf(tensor, domain.leaves[index], family, rng, special, domain.restricted)
    leaf = domain.leaves[index]
    out = tensor
    if not leaf.fixed and tensor.numel:
        form = LeafForm(tensor.shape, COMPLEX.get(tensor.dtype, tensor.dtype))
        values = _values(family, rng, form, domain.large)
        if tensor.is_complex:
            values = np.stack([values, _values(family, rng, form, domain.large)], -1)
        out = with_values(tensor, into_domain(values, leaf, domain.restricted))
    return LAYOUTS[family](out) if family in LAYOUTS else out


def _values(family: str, rng: Rng, form: LeafForm, large: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The values of a float leaf."""
    scale = min(large, 10.0 if form.dtype in FLOAT8 else 100.0 if form.dtype == "float16" else large)
    if family in MIXED_AXES:
        return mixed(rng, form, MIXED_AXES[family], scale)
    values = FLOAT_FAMILIES["normal" if family in LAYOUTS else family](rng, form)
    return values * scale if family in ("large", "scales") else values
