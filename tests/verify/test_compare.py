"""Comparisons: the element and the numbers of a failure, and no false passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.tensors import HostTensor
from hipwright.verify.compare import compare, dense
from hipwright.verify.comparison import OutputComparison
from hipwright.verify.expected import Expected, IndexRule
from hipwright.verify.tolerance import AllclosePolicy, find_gather, kernelbench_rule, strict_rule, unchanged_rule

RNG = np.random.Generator(np.random.Philox(7))
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Every test draws the same numbers, whatever ran before it in its process."""
    RNG.bit_generator.state = START


def rule(values: np.ndarray, dtype: str = "float32", c: float = 3.0):
    exact = HostTensor.of(values)
    native = HostTensor.from_f64(
        values, HostTensor.of(np.zeros(values.shape), "float32" if dtype == "float32" else dtype)
    )
    return strict_rule("output", native, exact, [exact], c=c, reduction=64)


def of(values: np.ndarray, dtype: str = "float32") -> HostTensor:
    return HostTensor.from_f64(np.asarray(values, np.float64), HostTensor.of(np.zeros(np.shape(values)), dtype))


def check(got: HostTensor, want) -> OutputComparison:
    return compare(got, Expected(want))


def test_the_rounded_reference_passes_in_every_dtype() -> None:
    values = RNG.standard_normal((40, 50))
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        assert check(of(values, dtype), rule(values, dtype)).worst_error < 1.0


@settings(max_examples=60, deadline=None)
@given(row=st.integers(0, 29), column=st.integers(0, 39), size=st.floats(1e-3, 1e3))
def test_one_wrong_element_is_found_and_named(row: int, column: int, size: float) -> None:
    values = RNG.standard_normal((30, 40))
    wrong = values.copy()
    wrong[row, column] += size
    found = check(of(wrong), rule(values))
    assert found.status == "wrong_value" and found.where == (row, column) and found.wrong >= 1
    assert found.got == pytest.approx(wrong[row, column], rel=1e-5)
    assert f"[{row}, {column}]" in found.message


@settings(max_examples=40, deadline=None)
@given(scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6, 1e18]), error=st.floats(2e-5, 0.5))
def test_errors_are_relative_to_the_row(scale: float, error: float) -> None:
    values = RNG.standard_normal((20, 64)) * scale
    assert not check(of(values * (1.0 + error)), rule(values)).ok
    assert check(of(values * (1.0 + 1e-7)), rule(values)).ok


def test_a_small_row_is_not_hidden_by_a_large_one() -> None:
    values = RNG.standard_normal((4, 64))
    values[2] *= 1e-4
    wrong = values.copy()
    wrong[2] = 0.0
    assert check(of(wrong), rule(values)).where[0] == 2


def test_a_row_of_infinite_budget_hides_no_other() -> None:
    """Squares of errors beyond the largest double over such a budget are no number, and not the worst of all."""
    made = rule(np.ones((3, 40)), "float64")
    assert made.row is not None
    assert made.element is not None
    row, element = made.row.copy(), np.array(made.element)
    row[1], element[1] = np.inf, np.inf
    loose = replace(made, row=row, element=element)
    far = np.ones((3, 40))
    far[1, 3] = 1e200
    assert check(of(far, "float64"), loose).ok
    far[2, 7] = 1.5
    found = check(of(far, "float64"), loose)
    assert not found.ok and found.where == (2, 7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_are_no_wildcards(bad: float) -> None:
    values = RNG.standard_normal((5, 40))
    wrong = values.copy()
    wrong[3, 7] = bad
    found = check(of(wrong), rule(values))
    assert not found.ok and found.where == (3, 7) and found.worst_error == np.inf
    assert not check(of(values), rule(wrong)).ok, "a number where the reference has none"
    assert check(of(wrong), rule(wrong)).ok


def test_the_sign_of_infinity_counts() -> None:
    assert not check(of(np.array([np.inf, 1.0])), rule(np.array([-np.inf, 1.0]))).ok


def test_where_the_baseline_overflows_there_is_no_evidence() -> None:
    values = np.array([1e5, 1.0, 2.0])
    exact = HostTensor.of(values)
    native = of(np.array([np.inf, 1.0, 2.0]), "float16")
    made = strict_rule("output", native, exact, [exact], c=3.0, reduction=1)
    assert made.judged is not None and made.judged.tolist() == [False, True, True]
    assert check(native, made).ok
    assert not check(of(np.array([np.inf, 1.0, 9.0]), "float16"), made).ok


def test_integers_and_booleans_are_exact() -> None:
    ints = HostTensor.of(np.array([[1, 2], [3, 4]], np.int64))
    made = strict_rule("output", ints, ints, [ints], c=3.0, reduction=1)
    assert check(ints, made).ok
    found = check(HostTensor.of(np.array([[1, 2], [3, 5]], np.int64)), made)
    assert found.where == (1, 1) and (found.expected, found.got) == (4, 5)
    flags = HostTensor.of(np.array([True, False]))
    assert not check(
        HostTensor.of(np.array([True, True])), strict_rule("o", flags, flags, [flags], c=3.0, reduction=1)
    ).ok


def test_tied_indices_are_judged_by_what_they_select() -> None:
    source = np.array([[1.0, 5.0, 5.0], [2.0, 0.0, 1.0]])
    ints = HostTensor.of(np.array([1, 0], np.int64))
    made = strict_rule("output", ints, ints, [ints], c=3.0, reduction=1)
    made = replace(made, gather=IndexRule(source, 1, False, np.array([5.0, 2.0])))
    assert check(HostTensor.of(np.array([2, 0], np.int64)), made).ok
    assert not check(HostTensor.of(np.array([0, 0], np.int64)), made).ok
    assert not check(HostTensor.of(np.array([3, 0], np.int64)), made).ok, "out of range selects nothing"
    assert not check(HostTensor.of(np.array([-2, 0], np.int64)), made).ok


def test_several_indices_of_a_row_may_be_any_of_the_equals_but_each_once() -> None:
    source = np.array([[0.0, 3.0, 0.0, 0.0]])
    ints = HostTensor.of(np.array([[1, 0, 2]], np.int64))
    made = strict_rule("output", ints, ints, [ints], c=3.0, reduction=1)
    made = replace(made, gather=find_gather(made.expected, [source]))
    for good in ([1, 0, 2], [1, 3, 2], [1, 2, 3]):
        assert check(HostTensor.of(np.array([good], np.int64)), made).ok
    for wrong in ([1, 3, 3], [1, 0, 0], [3, 1, 0], [1, 0, 4], [1, -1, 2]):
        assert not check(HostTensor.of(np.array([wrong], np.int64)), made).ok


# ---------------------------------------------------------------- structure


def test_dtype_shape_and_nesting_are_exact() -> None:
    values = RNG.standard_normal((3, 4))
    want = rule(values)
    assert check(of(values, "float64"), want).status == "bad_output_spec"
    assert check(of(values.reshape(4, 3)), want).status == "bad_output_spec"
    assert check(of(values[None]), want).status == "bad_output_spec"
    assert check((of(values),), want).status == "bad_output_spec"
    assert compare((of(values), of(values)), Expected((want, want))).ok
    assert compare([of(values), of(values)], Expected((want, want))).ok, "a list is a sequence too"
    assert compare((of(values),), Expected((want, want))).status == "bad_output_spec"
    assert compare({"a": of(values)}, Expected({"b": want})).status == "bad_output_spec"
    assert compare((of(values), 3), Expected((want, 3))).ok
    assert compare((of(values), True), Expected((want, 1))).status == "bad_output_spec"
    assert compare(None, Expected(want)).status == "bad_output_spec"


def test_dense_permutations_pass_and_overlaps_and_gaps_do_not() -> None:
    values = RNG.standard_normal((6, 8))
    want = rule(values)
    turned = of(values.T.copy())
    assert check(HostTensor("float32", (6, 8), (1, 6), 0, turned.storage), want).ok
    row = of(np.broadcast_to(values[:, :1], (6, 8)).copy())
    constant = rule(np.broadcast_to(values[:, :1], (6, 8)).copy())
    assert check(row, constant).ok
    expanded = HostTensor("float32", (6, 8), (1, 0), 0, of(values[:, 0].copy()).storage)
    assert "strides" in check(expanded, constant).message
    wide = of(np.repeat(values, 2, axis=1))
    assert check(HostTensor("float32", (6, 8), (16, 2), 0, wide.storage), want).status == "bad_output_spec"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda s: st.tuples(st.just(s), st.permutations(range(len(s))))
    )
)
def test_every_permutation_of_a_contiguous_tensor_is_dense(case) -> None:
    shape, order = case
    view = np.empty(shape, np.int8).transpose(order)
    assert dense(view.shape, view.strides)
    assert not dense((*view.shape, 2), (*view.strides, 0))


def test_an_unchanged_buffer_must_keep_its_bits() -> None:
    tensor = of(np.array([1.0, 2.0]))
    assert check(tensor, unchanged_rule("buffer b", tensor)).ok
    assert not check(of(np.array([1.0, 2.0000002])), unchanged_rule("buffer b", tensor)).ok


def test_empty_outputs_compare() -> None:
    empty = rule(np.zeros((0, 5)))
    assert check(of(np.zeros((0, 5))), empty).ok
    assert check(of(np.zeros((0, 4))), empty).status == "bad_output_spec"


def test_kernelbench_rule_is_allclose() -> None:
    values = RNG.standard_normal((10, 10))
    want = kernelbench_rule("output", of(values))
    for factor in (0.5, 0.99, 1.01, 2.0):
        moved = of(values)
        moved.bits()[3, 3] += np.float32(factor * (1e-4 + 1e-4 * abs(values[3, 3])))
        close = np.allclose(moved.to_f64(), of(values).to_f64(), rtol=1e-4, atol=1e-4)
        assert check(moved, want).ok is close


def test_a_formats_own_allclose() -> None:
    values = RNG.standard_normal((20, 10))
    want = kernelbench_rule("output", of(values), AllclosePolicy(atol=0.01, rtol=0.1))
    shared = kernelbench_rule("output", of(values), AllclosePolicy(atol=0.01, rtol=0.1, matched=0.99))
    for wrong in range(5):
        moved = of(values)
        moved.bits().reshape(-1)[:wrong] += np.float32(5.0)
        moved.bits()[9, 9] += np.float32(0.009 + 0.09 * abs(values[9, 9]))
        assert check(moved, want).ok is (wrong == 0)
        assert check(moved, shared).ok is (wrong <= 2), "2 of 200 elements are 1 %"
    assert not check(of(np.full((20, 10), np.nan)), shared).ok


def test_an_allclose_without_tolerance_takes_equal_values() -> None:
    values = RNG.standard_normal((4, 4))
    want = kernelbench_rule("output", of(values), AllclosePolicy(atol=0.0, rtol=0.0))
    assert check(of(values), want).ok and not check(of(values + 1e-3), want).ok
