"""The domain of a task's inputs, as two draws of `get_inputs` show it, and the values of a family moved into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hipwright.tensors import HostTensor, Tree, tensor_leaves
from hipwright.verify.inputs.values import F64

LARGE_SCALES = (1e6, 1e4, 1e2, 1e1)  # tried in turn until the reference stays representable
_STEPS = 3  # of a row that rise, from which on it is in order by no chance
_DISCRETE = 16  # a leaf with at most this many distinct values holds labels


@dataclass(frozen=True)
class InputLeaf:
    """The domain of one leaf, as its given values show it.

    fixed: keep as given (integers, labels). low, high: given range. zeros: positions that are 0 under every seed, when
    they are a pattern (a triangle, a mask). symmetric: equal to its transpose. normalised: rows sum to 1. rises: rows
    are lists in order, as the edges of bins.
    """

    fixed: bool = True
    low: float = 0.0
    high: float = 0.0
    zeros: npt.NDArray[np.bool_] | None = None
    symmetric: bool = False
    normalised: bool = False
    rises: bool = False


@dataclass(frozen=True)
class Domain:
    """The leaves' domains. `restricted` keeps non-negative leaves non-negative, and within [0, 1] if they were."""

    leaves: tuple[InputLeaf, ...]
    restricted: bool = False
    large: float = LARGE_SCALES[0]


def observe(first: Tree, second: Tree) -> Domain:
    """The domain that two draws of `get_inputs` show."""
    pairs = zip(tensor_leaves(first), tensor_leaves(second), strict=True)
    return Domain(tuple(_observe_leaf(a, b) for a, b in pairs))


def _observe_leaf(a: HostTensor, b: HostTensor) -> InputLeaf:
    if not a.is_float or not a.numel or a.shape != b.shape:
        return InputLeaf()
    x, y = a.to_f64(), b.to_f64()
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return InputLeaf()
    if x.size > 2 * _DISCRETE and len(np.unique(x)) <= _DISCRETE and len(np.unique(np.concatenate([x, y]))) > 1:
        return InputLeaf()
    zeros = (x == 0) & (y == 0)
    pattern = bool(0.2 * x.size < zeros.sum() < x.size)
    square = x.ndim >= 2 and x.shape[-1] == x.shape[-2] and x.shape[-1] > 1
    return InputLeaf(
        fixed=False,
        low=float(min(x.min(), y.min())),
        high=float(max(x.max(), y.max())),
        zeros=zeros if pattern else None,
        symmetric=bool(square and np.array_equal(x, np.swapaxes(x, -1, -2))),
        normalised=bool(x.ndim and x.shape[-1] > 1 and x.min() >= 0 and np.allclose(x.sum(-1), 1.0, atol=1e-2)),
        rises=not a.is_complex and _rises(x) and _rises(y),
    )


def _rises(values: F64) -> bool:
    """Whether every row is a list in order (`task.host.draw.rises`)."""
    if not values.ndim or values.shape[-1] < 2 or bool((np.diff(values[..., :_DISCRETE], axis=-1) < 0).any()):
        return False
    steps = np.diff(values, axis=-1)
    least = min(_STEPS, steps.shape[-1])
    return bool((steps >= 0).all() and ((steps > 0).sum(-1) >= least).all())


def into_domain(values: F64, leaf: InputLeaf, restricted: bool) -> F64:
    """`values` with the leaf's pattern of zeros, symmetry, order and, where the task is restricted, its range."""
    values = _into_range(values, leaf, restricted)
    return np.sort(values, axis=-1) if leaf.rises and not leaf.symmetric and values.ndim else values


def _into_range(values: F64, leaf: InputLeaf, restricted: bool) -> F64:
    if leaf.zeros is not None and leaf.zeros.shape == values.shape:
        values = np.where(leaf.zeros, 0.0, values)
    if leaf.symmetric:
        values = (values + np.swapaxes(values, -1, -2)) / 2
    if not restricted or leaf.low < 0:
        return values
    values = np.abs(values)
    if leaf.normalised:
        total = values.sum(-1, keepdims=True)
        return np.where(total > 0, values / np.where(total > 0, total, 1.0), 1.0 / values.shape[-1])
    if leaf.low > 0:
        values = values + leaf.low
    if leaf.high <= 1.0 and values.size and values.max() > 0:
        top = values.max()
        values = values * (leaf.high / top)
        values = np.maximum(values, leaf.low)
    return values
