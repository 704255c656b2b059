"""The honest baseline's errors on further draws, where those of one say too little (`tolerance.strict_rule`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hipwright.errors import HipwrightError, InfrastructureError
from hipwright.tensors import HostTensor, Tree, tensor_leaves
from hipwright.verify import inputs as draws
from hipwright.verify.expected import F64
from hipwright.verify.tolerance import FLOOR, row_length

FEW_ELEMENTS, REDRAWS = 32, 6
"""Leaves of at most so many elements take the baseline's error from so many further draws."""
DECOMPOSED_DRAWS, DECOMPOSED_S = 8, 4.0
"""Further runs of a reference on nudged inputs, and the seconds after which no further one begins."""
FEW_ROWS, CONCENTRATED = 10, 0.5
"""Rows below which no tenth of them may be as far off as the worst, and the share of a leaf's squared errors from which
one element's is a single random number."""
_DECOMPOSED_SEED = 1000  # beyond those of other nudges
Reference = Callable[..., tuple[Tree, Any, Any]]
"""(inputs, state, dtype=) -> (outputs, state afterwards, info), as `TaskHandle.reference`."""
Errors = dict[int, F64]
"""By the id of a leaf of the baseline: the error of each of its elements."""


def redrawn_errors(
    reference: Reference, native: Tree, state: Tree, nudge_seed: int, redraw: Callable[[int], Tree]
) -> Errors:
    """The baseline's largest errors in leaves of few elements on other inputs of the same kind.

    One draw of a loss may happen to be exact to the last bit, above all where large parts of it cancel; one in float64
    always is, so that there the error on nudged inputs counts.
    """
    mine = tensor_leaves(native)
    few = [n for n, leaf in enumerate(mine) if leaf.is_float and 0 < leaf.numel <= FEW_ELEMENTS]
    found: Errors = {}
    for number in range(REDRAWS if few else 0):
        try:
            inputs = redraw(number)
            want = reference(inputs, state, dtype="float64")[0]
            if all(mine[n].dtype == "float64" for n in few):  # whose baseline has no error of its own
                base = reference(draws.nudge(inputs, nudge_seed + 2 + number), state, dtype="float64")[0]
            else:
                base = reference(inputs, state, dtype="native")[0]
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
            continue
        _raise(found, [mine[n] for n in few], *([tensor_leaves(tree)[n] for n in few] for tree in (base, want)))
    return found


def is_concentrated(native: Tree, exact: Tree, nudged: Sequence[Tree], c: float) -> bool:
    """Whether the error of some leaf of few rows is mostly that of one element, and no floor covers it: an
    ill-conditioned one beside others, as in a norm of two nearly equal values, which each of few draws may show as near
    0. c: the policy's.
    """
    trees = [tensor_leaves(tree) for tree in (exact, native, *nudged)]
    for want, base, *moved in zip(*trees, strict=True):
        if not base.is_float or not 0 < want.numel < FEW_ROWS * row_length(want.values_shape):
            continue
        true = want.to_f64()
        least = np.square(FLOOR[base.dtype] / c * true).sum(where=np.isfinite(true))
        for values in (leaf.to_f64() for leaf in (base, *moved)):
            with np.errstate(invalid="ignore", over="ignore"):
                error = np.nan_to_num(np.square(values - true), nan=0.0, posinf=0.0)
            if error.sum() > least and error.max() > CONCENTRATED * error.sum():
                return True
    return False


def decomposed_errors(
    reference: Reference,
    native: Tree,
    exact: Tree,
    inputs: Tree,
    state: Tree,
    nudge_seed: int,
    still: Sequence[float] = (),
) -> Errors:
    """The baseline's largest errors on inputs and parameters that are nudged and rounded to their dtypes.

    So is the error of an ill-conditioned element among others measured, and a decomposition's: that of its vectors is
    that of the closest pair of values alone, a single random number, which one run may show as near 0; and where
    rounding decides a sign, one run shows one of two.
    """
    mine, want = (tensor_leaves(tree) for tree in (native, exact))
    floats = [n for n, leaf in enumerate(mine) if leaf.is_float and leaf.numel]
    found: Errors = {}
    for outputs in _nudged_outputs(reference, inputs, state, nudge_seed, still):
        base = tensor_leaves(outputs)
        if len(base) == len(mine):
            _raise(found, *([leaves[n] for n in floats] for leaves in (mine, base, want)))
    return found


def _nudged_outputs(
    reference: Reference, inputs: Tree, state: Tree, nudge_seed: int, still: Sequence[float]
) -> Iterator[Tree]:
    end = time.monotonic() + DECOMPOSED_S
    for number in range(DECOMPOSED_DRAWS):
        seed = nudge_seed + _DECOMPOSED_SEED + 2 * number
        try:
            moved = draws.nudge(inputs, seed, rounded=True, still=still)
            outputs = reference(moved, draws.nudge_state(state, seed + 1), dtype="native")[0]
        except HipwrightError as error:
            if isinstance(error, InfrastructureError):
                raise
        else:
            yield outputs
        if time.monotonic() > end:
            return


def _raise(found: Errors, leaves: Sequence[HostTensor], base: Sequence[HostTensor], want: Sequence[HostTensor]) -> None:
    """Takes the errors of some leaves into `found` where they are larger; of other shapes none."""
    for leaf, own, true in zip(leaves, base, want, strict=True):
        mine, exact = own.to_f64(), true.to_f64()
        if mine.shape != exact.shape or exact.shape != leaf.to_f64().shape:
            continue
        with np.errstate(invalid="ignore"):
            error = np.nan_to_num(np.abs(mine - exact), nan=0.0, posinf=0.0)
        found[id(leaf)] = np.maximum(found.get(id(leaf), 0.0), error)
