"""Whether results on whole numbers, the family `exact`, are those of sums that round nowhere."""

from __future__ import annotations

import numpy as np

from hipwright.tensors import HostTensor, Tree, tensor_leaves
from hipwright.verify.inputs.layouts import with_values
from hipwright.verify.inputs.values import F64
from hipwright.verify.tolerance import UNIT


def all_exact(native: Tree, exact: Tree) -> bool:
    """Whether every native float leaf is the fp64 one rounded to its dtype, and every other one equal."""
    pairs = zip(tensor_leaves(native), tensor_leaves(exact), strict=True)
    for mine, want in pairs:
        if mine.shape != want.shape:
            return False
        rounded = with_values(HostTensor.of(mine.bits(), mine.dtype), want.to_f64()) if mine.is_float else want
        if mine.is_float and not np.array_equal(mine.to_f64(), rounded.to_f64(), equal_nan=True):
            return False
        if not mine.is_float and not np.array_equal(mine.bits(), want.bits()):
            return False
    return True


def whole_numbers(values: F64, dtype: str, inputs: Tree) -> bool:
    """Whether the values are whole numbers, or all of them multiples of 1 / n for some count n of terms, and so small
    that every such number is exact in what sums of this dtype are accumulated in.
    """
    finite = values[np.isfinite(values)]
    leaves = [leaf for leaf in tensor_leaves(inputs) if leaf.numel]
    counts = {
        1,
        *(size for leaf in leaves for size in leaf.shape),
        *(leaf.numel // max(values.size, 1) for leaf in leaves),
    }
    most = 1.0 / UNIT["float64" if dtype in ("float64", "complex128") else "float32"]
    if np.any(np.abs(finite) > most):
        return False
    sums = (finite * n for n in sorted(counts) if n)
    return any(bool(np.all(np.abs(one - np.round(one)) < 1e-7)) and bool(np.all(np.abs(one) <= most)) for one in sums)
