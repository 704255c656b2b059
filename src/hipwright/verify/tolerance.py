"""Budgets: the error that an honest kernel may make in one output leaf, computed from the reference alone.

A budget is c times the larger of two errors, and at least a floor per dtype, relative to the rms of the row: the error
of the honest baseline (torch eager in the task's dtype), and the change of the fp64 result when every float input moves
by half an ulp, which any backward-stable kernel may make (docs/verification.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hipwright.float8 import FLOAT8
from hipwright.records import TensorSpec, TolerancePolicy
from hipwright.tensors import BITS, COMPLEX, HostTensor
from hipwright.verify.blockwise.rows import element_budgets, honest_rows
from hipwright.verify.expected import F64, IndexRule, Mask, Rule

_INDICES = ("int32", "int64")
_E4M3 = ("float8_e4m3fn", "float8_e4m3fnuz")
_E5M2 = ("float8_e5m2", "float8_e5m2fnuz")


class AllclosePolicy(TolerancePolicy, frozen=True, kw_only=True):
    """KernelBench's rule with a format's own numbers: that share of elements within atol + rtol |baseline|."""

    mode: Literal["strict", "kernelbench"] = "kernelbench"
    atol: float
    rtol: float
    matched: float = 1.0


def _by_dtype(double: float, single: float, half: float, bfloat: float, e4m3: float, e5m2: float) -> dict[str, float]:
    """A number for each float dtype; that of a complex one is its parts'."""
    found = {"float64": double, "float32": single, "float16": half, "bfloat16": bfloat}
    found |= {"complex128": double, "complex64": single}
    return found | dict.fromkeys(_E4M3, e4m3) | dict.fromkeys(_E5M2, e5m2)


def computed(dtype: str) -> str:
    """In which dtype a kernel rounds what it computes with a float tensor: none computes in 8 bits, which widen
    exactly.
    """
    return "bfloat16" if dtype in FLOAT8 else dtype


UNIT = _by_dtype(2.0**-53, 2.0**-24, 2.0**-11, 2.0**-8, 2.0**-4, 2.0**-3)  # unit roundoff
ROUNDING = {dtype: UNIT[computed(dtype)] for dtype in UNIT}
"""By what an honest kernel rounds what it computes with such tensors."""
LARGEST = _by_dtype(1.797e308, 3.4028e38, 65504.0, 3.3895e38, 240.0, 57344.0) | {"float8_e4m3fn": 448.0}
SMALLEST = _by_dtype(2.3e-308, 1.2e-38, 6.2e-5, 1.2e-38, 2.0**-6, 2.0**-14)  # normal
FLOOR = _by_dtype(1e-14, 1e-6, 1e-3, 8e-3, 2.0**-4, 2.0**-3)
FLOOR_CAP = 1e-5  # float32 floor for the longest reductions
SPREAD = 2.0  # standard deviations of the rounding errors of a sum

MIN_ROW = 32  # elements; shorter rows are merged, so that one exact rounding of the baseline does not set the budget
ELEMENT = 4.0  # one element may be this many row budgets off: the 4 sigma of a row of 10^4 elements
# KernelBench's own rule (its eval: torch.allclose with atol = rtol)
ALLCLOSE = _by_dtype(1e-4, 1e-4, 1e-2, 1e-2, 0.125, 0.25)


EXACT_SLACK = 16
"""Units roundoff of the accumulator's dtype, relative to the sum of absolute values, that a result without rounding may
be off by."""
NEAR_CONSTANT = frozenset({"zeros90"})
"""Families whose rows hold one value nearly everywhere, so that sums have mostly equal terms."""


def floor(dtype: str, reduction: int, *, near_constant: bool = False) -> float:
    """Relative rms error that every kernel of this dtype may make, with `reduction` terms in a sum.

    For float32 and float64 at least SPREAD sqrt(n) u: what adding n terms one by one costs with high probability
    (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). Equal terms (`near_constant`)
    round alike at every step: half of the worst case, n u / 2 (Higham, "Accuracy and stability", section 4.2).
    """
    part = COMPLEX.get(dtype, dtype)
    if part not in ("float32", "float64"):
        return FLOOR[dtype]
    steps = max(SPREAD * sqrt(reduction), reduction / 4 if near_constant else 0.0)
    grown = max(FLOOR[dtype], steps * UNIT[dtype])
    return min(grown, FLOOR_CAP) if part == "float32" else grown


def reduction_length(leaves: Sequence[TensorSpec | HostTensor], weights: Sequence[HostTensor], out: int) -> int:
    """An upper estimate of how many terms are summed into one output element.

    The largest of: elements of the largest leaf per output element (sums), elements of a weight per output feature
    (products, convolutions), and the longest dimension (norms, softmax).
    """
    sizes = [prod(leaf.shape) // max(out, 1) for leaf in (*leaves, *weights)]
    sizes += [prod(w.shape[1:]) for w in weights if len(w.shape) > 1]
    sizes += [max(leaf.shape, default=1) for leaf in (*leaves, *weights)]
    return max(sizes, default=1)


def row_length(shape: Sequence[int]) -> int:
    """Elements of the shortest trailing block of dimensions with at least `MIN_ROW` elements, or all of them."""
    length = 1
    for size in reversed(shape):
        if length >= MIN_ROW:
            break
        length *= size
    return max(length, 1)


def strict_rule(
    path: str,
    native: HostTensor,
    exact: HostTensor,
    nudged: Sequence[HostTensor],
    *,
    c: float,
    reduction: int,
    redrawn: F64 | None = None,
    near_constant: bool = False,
) -> Rule:
    """The Rule of one leaf.

    native: the honest baseline; exact: the fp64 reference; nudged: the fp64 reference on nudged inputs, one for each of
    the first of `NUDGES`. Of what n roundings move, an n-th counts, so that c times it is all of it, where n is c: the
    change itself where a clipped element moves or a close decision is taken the other way.
    redrawn: the honest baseline's error on other inputs of the same kind, where a leaf has too few elements for one
    draw to show it. near_constant: the inputs' rows hold one value nearly everywhere.
    An integer or bool leaf takes its dtype from `native` and is exact where all three agree.
    """
    if not native.is_float:
        return _exact_rule(path, native, exact, nudged)
    if not exact.numel:
        want = exact.to_f64()
        return Rule(path=path, spec=native.spec, expected=want, element=want)
    least = SMALLEST[native.dtype]
    length = row_length(exact.values_shape)
    found = honest_rows(native, exact, nudged, redrawn, length)
    scale, spent = found.scale, found.spent
    with np.errstate(over="ignore"):  # the scale of a row may be the smallest number
        typical = np.median(spent[scale > 0] / scale[scale > 0]) if (scale > 0).any() else 0.0
    few = 1.0 + 2.0 / length
    lowest = floor(native.dtype, reduction, near_constant=near_constant)
    least_relative = max(c * few * float(typical), lowest)
    with np.errstate(over="ignore", invalid="ignore"):  # near the largest numbers a budget may be infinite
        # a row may have been exact by chance, or its terms cancel: then the median row's error sets the budget
        row = np.maximum(c * few * np.maximum(spent, np.median(spent)), least_relative * scale) + least
        worst = float((spent[scale > 0] / scale[scale > 0]).max(initial=0.0))
        usual_worst = c * few * np.minimum(worst * scale, spent.max()) + least
        lift = np.maximum(usual_worst / row, 1.0)
    lift = np.where(np.isfinite(lift), lift, 1.0)
    # an element far above its row's rms may lose the floor's share of itself; where a decision goes the other way, the
    # element has its row's error besides
    element = element_budgets(found, row, c=c, lowest=lowest, element=ELEMENT)
    return Rule(
        path=path,
        spec=native.spec,
        expected=found.want,
        element=element,
        row=row,
        row_length=length,
        lift=lift,
        judged=found.judged,
    )


def exact_rule(path: str, native: HostTensor, exact: HostTensor, total: HostTensor) -> Rule:
    """The rule of a leaf that is computed without rounding.

    total: the fp64 reference on the absolute values of inputs and parameters: the sum of the terms' absolute values
    where the leaf is a sum.
    """
    if not native.is_float:
        return _exact_rule(path, native, exact, [exact])
    want, terms = exact.to_f64(), np.abs(total.to_f64())
    sums = UNIT["float64" if native.dtype in ("float64", "complex128") else "float32"]
    terms = np.where(np.isfinite(terms), terms, 0.0)
    finite = np.where(np.isfinite(want), np.abs(want), 0.0)
    element = 2 * 2 * UNIT[native.dtype] * finite + EXACT_SLACK * sums * terms + SMALLEST[native.dtype]
    return Rule(path=path, spec=native.spec, expected=want, element=element)


def kernelbench_rule(path: str, native: HostTensor, policy: TolerancePolicy | None = None) -> Rule:
    """KernelBench's rule: |got - baseline| <= atol + rtol |baseline|; integers exact. policy: other numbers."""
    if not native.is_float:
        return Rule(path=path, spec=native.spec, expected=native.bits().copy())
    want, atol, matched = native.to_f64(), ALLCLOSE[native.dtype], 1.0
    rtol = atol
    if isinstance(policy, AllclosePolicy):
        atol, rtol, matched = policy.atol, policy.rtol, policy.matched
    element = atol + rtol * np.where(np.isfinite(want), np.abs(want), 0.0)
    element = np.maximum(element, SMALLEST[native.dtype])  # an allclose without tolerance
    return Rule(path=path, spec=native.spec, expected=want, element=element, matched=matched)


def unchanged_rule(path: str, tensor: HostTensor) -> Rule:
    """The rule of a leaf that must keep its bits, such as a buffer that the reference does not write."""
    return Rule(path=path, spec=tensor.spec, expected=np.array(tensor.bits(), copy=True), evidence=False)


def _exact_rule(path: str, native: HostTensor, exact: HostTensor, nudged: Sequence[HostTensor]) -> Rule:
    want, own = exact.bits().astype(BITS[native.dtype]), native.bits()
    judged: Mask = want == own
    for moved in nudged:
        judged = judged & (want == moved.bits().astype(want.dtype))
    near: Mask = (want < 0) & (own >= 0) & (native.dtype in _INDICES)  # how modes/ties.py marks a choice among those
    # the float64 run's choice, as the baseline may have taken another; one among equals is marked in all but its own
    want = np.where(near, np.invert(want), np.where(judged, want, own)) if near.any() else np.where(judged, want, own)
    known, among = (None if judged.all() else judged), (near if near.any() else None)
    return Rule(path=path, spec=native.spec, expected=want, judged=known, near=among)


# ---------------------------------------------------------------- selections


def find_gather(
    index: npt.NDArray[Any], sources: Sequence[F64], outputs: Sequence[npt.NDArray[Any]] = ()
) -> IndexRule | None:
    """How an index leaf selects from one of `sources` by value along a dimension, or None.

    Covers the indices of max, min, median and kthvalue with and without the reduced dimension, and of topk and sort:
    there torch leaves the choice among equal values open. outputs: the task's float outputs. Of a cube of mostly equal
    values several dimensions may fit: then the one whose values are an output counts, and all of them where none is.
    """
    if index.dtype.kind != "i" or not index.size or index.min() < 0:
        return None
    fits = [found for source in sources for dim in range(source.ndim) if (found := _reading(index, source, dim))]
    told = [one for one in fits if any(np.array_equal(one.values, known, equal_nan=True) for known in outputs)]
    return replace((told or fits)[0], others=tuple((told or fits)[1:])) if fits else None


def _reading(index: npt.NDArray[Any], source: F64, dim: int) -> IndexRule | None:
    """How an index leaf selects from a source along one dimension; at most one of the forms has its shape."""
    if index.max() >= source.shape[dim] or source.shape[dim] < 2:
        return None
    found = _selects(index, source, dim, True) or _selects(index, source, dim, False)
    return found or _orders(index, source, dim)


def _selects(index: npt.NDArray[Any], source: F64, dim: int, keepdim: bool) -> IndexRule | None:
    """One index a row: of the largest, the smallest, or the one of some rank."""
    kept = (*source.shape[:dim], 1, *source.shape[dim + 1 :])
    if index.shape != (kept if keepdim else (*source.shape[:dim], *source.shape[dim + 1 :])):
        return None
    full = np.take_along_axis(source, index.reshape(kept).astype(np.int64), axis=dim)
    others = tuple(axis for axis in range(source.ndim) if axis != dim)
    if any(np.array_equal(full, extreme(source, axis=dim, keepdims=True)) for extreme in (np.max, np.min)) or bool(
        (np.sort(source, axis=dim) == full).all(axis=others).any()
    ):
        return IndexRule(source, dim, keepdim, full if keepdim else np.squeeze(full, dim))
    return None


def _orders(index: npt.NDArray[Any], source: F64, dim: int) -> IndexRule | None:
    """Several indices a row: of the largest or smallest, in order."""
    count = index.shape[dim] if index.ndim == source.ndim else 0
    if not 2 <= count <= source.shape[dim] or index.shape != (*source.shape[:dim], count, *source.shape[dim + 1 :]):
        return None
    taken, first = np.take_along_axis(source, index.astype(np.int64), axis=dim), range(count)
    upwards = np.sort(source, axis=dim)
    if any(np.array_equal(taken, way.take(first, dim), equal_nan=True) for way in (upwards, np.flip(upwards, dim))):
        return IndexRule(source, dim, True, taken, several=True)
    return None
