"""Compares outputs with their expectation: structure first, then values against the fp64 reference.

Errors are judged twice: the rms over a row against the row's budget, and every element against its own. Both budgets
are absolute numbers that `tolerance` computes from the reference alone, so a comparison is a few NumPy passes
(docs/verification.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from hipwright.records import TensorSpec
from hipwright.tensors import HostTensor, Tree
from hipwright.verify.blockwise.screen import worst_within
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.expected import F64, LUCKY_SHARE, Expected, Mask, Rule
from hipwright.verify.inputs.written import raw_bits


def compare(got: Tree, expected: Expected) -> OutputComparison:
    """The comparison of the worst leaf; structure is checked before any value."""
    spec = check_structure(got, expected.tree)
    if spec is not None:
        return spec
    worst = OutputComparison()
    for tensor, rule in _pairs(got, expected.tree):
        found = compare_leaf(tensor, rule)
        if (found.ok, -found.worst_error) < (worst.ok, -worst.worst_error):
            worst = found
    return worst


def _pairs(got: Tree, tree: Any) -> list[tuple[HostTensor, Rule]]:
    if isinstance(tree, Rule):
        return [(got, tree)]
    if isinstance(tree, Mapping):
        return [pair for key, item in tree.items() for pair in _pairs(got[key], item)]
    if isinstance(tree, (list, tuple)):
        return [pair for a, b in zip(got, tree, strict=True) for pair in _pairs(a, b)]
    return []


# ---------------------------------------------------------------- structure


def check_structure(got: Tree, tree: Any, path: str = "output") -> OutputComparison | None:
    """None when nesting, dtypes, shapes and layouts are as expected, else a bad_output_spec comparison."""
    if isinstance(tree, Rule):
        return _check_tensor(got, tree)
    if isinstance(tree, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(tree):
            return _bad(path, f"a dict with {sorted(tree)}", _describe(got))
        return _first(check_structure(got[key], item, f"{path}[{key!r}]") for key, item in tree.items())
    if isinstance(tree, (list, tuple)):
        # a plan cannot build a list, so a tuple of the same length is accepted for one
        if not isinstance(got, (list, tuple)) or len(got) != len(tree):
            return _bad(path, f"a sequence of {len(tree)}", _describe(got))
        return _first(check_structure(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(got, tree, strict=True)))
    return _check_scalar(got, tree, path)


def _first(found: Any) -> OutputComparison | None:
    return next((item for item in found if item is not None), None)


def _check_scalar(got: Tree, want: Any, path: str) -> OutputComparison | None:
    same = type(got) is type(want) and (got == want or (got != got and want != want))
    if isinstance(want, float) and isinstance(got, float) and want == want:
        same = abs(got - want) <= 1e-6 * abs(want)
    return None if same else _bad(path, repr(want), _describe(got))


def _check_tensor(got: Tree, rule: Rule) -> OutputComparison | None:
    want = rule.spec
    if not isinstance(got, HostTensor):
        return _bad(rule.path, _describe(want), _describe(got))
    if got.dtype != want.dtype:
        return _bad(rule.path, f"dtype {want.dtype}", f"dtype {got.dtype}")
    if got.shape != want.shape:
        return _bad(rule.path, f"shape {list(want.shape)}", f"shape {list(got.shape)}")
    if not (_same_strides(got.stride, want) or dense(got.shape, got.stride)):
        return _bad(
            rule.path,
            f"strides {list(want.stride)} or a dense layout",
            f"strides {list(got.stride)}",
        )
    return None


def _same_strides(stride: Sequence[int], want: TensorSpec) -> bool:
    return all(a == b or n == 1 for a, b, n in zip(stride, want.stride, want.shape, strict=True)) or 0 in want.shape


def dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """True when no two elements share memory and there are no gaps (any order of the dimensions)."""
    if prod(shape) <= 1:
        return True
    step = 1
    for s, n in sorted((s, n) for s, n in zip(stride, shape, strict=True) if n > 1):
        if s != step:
            return False
        step *= n
    return True


def _bad(path: str, want: str, got: str) -> OutputComparison:
    return OutputComparison(
        status="bad_output_spec",
        worst_error=inf,
        path=path,
        expected=want,
        got=got,
        message=f"{path} must be {want}, but is {got}",
    )


def _describe(value: Any) -> str:
    if isinstance(value, HostTensor):
        return _describe(value.spec)
    if isinstance(value, TensorSpec):
        return f"a {value.dtype} tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a sequence of {len(value)}"
    return "a dict" if isinstance(value, Mapping) else repr(value)


# ---------------------------------------------------------------- values


def compare_leaf(got: HostTensor, rule: Rule) -> OutputComparison:
    """The comparison of one tensor whose dtype, shape and layout have been checked."""
    if got.numel == 0:
        return OutputComparison(path=rule.path)
    found = rule.accepted.find(got)
    if found is None:
        found = _compare_values(got, rule)
        if found.ok:
            rule.accepted.keep(got, found)
    return found


def _compare_values(got: HostTensor, rule: Rule) -> OutputComparison:
    if rule.stays is not None and rule.before is not None and got.dtype == rule.spec.dtype:
        bits = raw_bits(got)
        touched = (bits != rule.before) & rule.stays
        if touched.any():
            return _touched(got, rule, touched)
    if rule.element is None:
        return _compare_exact(got, rule)
    within = worst_within(got, rule)
    if within is not None:
        return _within(rule, *within)
    values, judged = got.to_f64(), rule.judged
    wrong_mask = _mask_mismatch(values, rule.expected)
    if judged is not None:
        wrong_mask &= judged
    if wrong_mask.any():
        return _nonfinite(values, rule, wrong_mask)
    with np.errstate(invalid="ignore"):
        error = np.abs(values - rule.expected)
    error = np.where(np.isfinite(error) if judged is None else np.isfinite(error) & judged, error, 0.0)
    with np.errstate(over="ignore"):
        ratio = error / rule.element
    if rule.row is not None:
        rows = error.reshape(-1, rule.row_length)
        with np.errstate(over="ignore", invalid="ignore"):
            row_ratio = np.sqrt(np.mean(rows * rows, axis=1)) / rule.row
        row_ratio[np.isnan(row_ratio)] = 0.0  # a budget beyond the largest double refuses nothing
        relief = _row_relief(rule, np.maximum(row_ratio, ratio.reshape(rows.shape).max(axis=1)))
        row_ratio, ratio = row_ratio / relief, (ratio.reshape(rows.shape) / relief[:, None]).reshape(ratio.shape)
    where = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    worst = float(ratio[where])
    wrong = int(np.count_nonzero(ratio > 1.0))
    by_row = False
    if rule.row is not None and (top := float(row_ratio.max())) > max(worst, 1.0):
        worst, row = top, int(row_ratio.argmax())
        flat = row * rule.row_length + int(np.argmax(ratio.reshape(-1, rule.row_length)[row]))
        where, by_row = np.unravel_index(flat, ratio.shape), True
        wrong = max(wrong, int(np.count_nonzero(row_ratio > 1.0)))
    if rule.matched < 1.0 and wrong <= (1.0 - rule.matched) * ratio.size:
        worst = min(worst, 1.0)
    return _judged(values, rule, where, worst, wrong, by_row)


def _within(rule: Rule, flat: int, worst: float, got: float) -> OutputComparison:
    """The comparison of a leaf that is finite and within every budget. flat: the place of its worst element."""
    where = np.unravel_index(flat, rule.expected.shape)
    assert rule.element is not None
    place = tuple(map(int, where))
    return OutputComparison(
        worst_error=worst,
        path=rule.path,
        where=place,
        expected=float(rule.expected[place]),
        got=got,
        budget=float(rule.element[place]),
        total=rule.expected.size,
    )


def _row_relief(rule: Rule, worst: F64) -> F64:
    """The factor on each row's budgets: its `lift` where that lets the row pass and few rows need one.

    worst: each row's largest error over budget.
    """
    over = worst > 1.0
    if rule.lift is None or not over.any() or over.sum() > LUCKY_SHARE * over.size:
        return np.ones_like(worst)
    return np.where(over & (worst <= rule.lift), rule.lift, 1.0)


def _judged(values: F64, rule: Rule, where: Any, worst: float, wrong: int, by_row: bool) -> OutputComparison:
    assert rule.element is not None
    place = tuple(int(i) for i in where)
    want, have, budget = float(rule.expected[place]), float(values[place]), float(rule.element[place])
    message, status = "", "pass"
    if worst > 1.0:
        status = "wrong_value"
        kind = "its row's rms error" if by_row else "the error"
        message = (
            f"{rule.path}{_index(place)} is {have:.9g}, expected {want:.9g}: {kind} is {worst:.3g} times the "
            f"tolerance ({wrong} of {values.size} {'rows or elements' if by_row else 'elements'} wrong)"
        )
    return OutputComparison(
        status=status,  # type: ignore[arg-type]
        worst_error=worst,
        path=rule.path,
        where=place,
        expected=want,
        got=have,
        budget=budget,
        wrong=wrong,
        total=values.size,
        message=message,
    )


def _mask_mismatch(values: F64, expected: F64) -> Mask:
    """Where one value is NaN, +Inf or -Inf and the other is not the same."""
    kinds = [np.isnan(values) != np.isnan(expected)]
    kinds += [(values == sign) != (expected == sign) for sign in (inf, -inf)]
    mismatch: Mask = np.logical_or.reduce(kinds)
    return mismatch


def _nonfinite(values: F64, rule: Rule, mismatch: Mask) -> OutputComparison:
    return _first_wrong(values, rule, mismatch, ": NaN and Inf must stand where the reference has them")


def _first_wrong(values: npt.NDArray[Any], rule: Rule, wrong: Mask, why: str) -> OutputComparison:
    """The comparison of a leaf with elements outside their budgets; names the first of them."""
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
    want, have = rule.expected[place].item(), values[place].item()
    shown = [f"{value:.9g}" if isinstance(value, float) else str(value) for value in (have, want)]
    count = int(wrong.sum())
    return OutputComparison(
        status="wrong_value",
        worst_error=inf,
        path=rule.path,
        where=place,
        expected=want,
        got=have,
        wrong=count,
        total=values.size,
        message=f"{rule.path}{_index(place)} is {shown[0]}, expected {shown[1]}{why} "
        f"({count} of {values.size} elements wrong)",
    )


def _touched(got: HostTensor, rule: Rule, touched: Mask) -> OutputComparison:
    """The comparison of a leaf that changed where the task does not write."""
    values = got.to_f64() if rule.element is not None else got.bits()
    return _first_wrong(values, rule, touched, ": the task does not write there, so its bits must stay")


def _compare_exact(got: HostTensor, rule: Rule) -> OutputComparison:
    bits = got.bits()
    wrong = bits != rule.expected
    if rule.judged is not None:
        wrong &= rule.judged
    if rule.gather is not None and wrong.any():
        wrong &= ~rule.gather.same_choice(bits.astype(np.int64))
    if not wrong.any():
        return OutputComparison(path=rule.path, total=bits.size)
    return _first_wrong(bits, rule, wrong, "")


def _index(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]" if place else ""
