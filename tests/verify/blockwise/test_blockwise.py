"""Budgets and comparisons block by block are those of whole arrays, to the bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.task.nudges import NUDGES
from hipwright.tensors import COMPLEX, HostTensor
from hipwright.verify import tolerance
from hipwright.verify.blockwise import blocks, screen
from hipwright.verify.compare import compare_leaf
from hipwright.verify.degenerate import case_evidence_of
from hipwright.verify.expected import Expected, Rule

SHAPES = [(3, 40), (130,), (5, 7, 32), (257, 33), (2, 500), (6, 64), (1, 1)]
DTYPES = ["float64", "float32", "float16", "bfloat16", "complex64"]
SPECIAL = [float("nan"), float("inf"), -float("inf"), 1e300, 1e-320, -0.0]


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Several blocks, and several threads, for tensors that are quickly made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 64)
        patch.setattr(blocks, "THREADED", 256)
        yield


def whole_rule(native: HostTensor, exact: HostTensor, nudged: list[HostTensor], c: float) -> dict[str, np.ndarray]:
    """The budgets in passes over whole arrays (docs/verification.md)."""
    want, base = exact.to_f64(), native.to_f64()
    length = tolerance.row_length(want.shape)
    with np.errstate(all="ignore"):
        honest = np.abs(base - want)
        for way, moved in zip(NUDGES, nudged, strict=True):
            change = np.abs(moved.to_f64() - want) / abs(way.size)
            honest = np.fmax(honest, np.where(np.isinf(change), np.nan, change))
        finite = np.isfinite(want) & np.isfinite(base)
        alike = (np.isnan(want) & np.isnan(base)) | ((want == base) & np.isinf(want))
        usable = finite & np.isfinite(honest)

        def rms(values: np.ndarray) -> np.ndarray:
            rows = values.reshape(-1, length)
            largest = np.abs(rows).max(axis=1, initial=0.0)
            safe = np.where(largest > 0, largest, 1.0)
            return largest * np.sqrt(np.mean((rows / safe[:, None]) ** 2, axis=1))

        scale, spent = rms(np.where(usable, want, 0.0)), rms(np.where(usable, honest, 0.0))
        some, few = scale > 0, 1.0 + 2.0 / length
        typical = float(np.median(spent[some] / scale[some])) if some.any() else 0.0
        lowest = tolerance.floor(native.dtype, 64)
        least = tolerance.SMALLEST[native.dtype]
        row = np.maximum(c * few * np.maximum(spent, np.median(spent)), max(c * few * typical, lowest) * scale) + least
        own = np.where(usable, c * honest + lowest * np.abs(want), 0.0)
        by_row = np.repeat(row, length).reshape(want.shape)
        worst = float((spent[some] / scale[some]).max(initial=0.0))
        lift = np.maximum((c * few * np.minimum(worst * scale, spent.max()) + least) / row, 1.0)
        lift = np.where(np.isfinite(lift), lift, 1.0)
    return {
        "expected": want,
        "element": np.maximum(tolerance.ELEMENT * by_row, own + by_row),
        "row": row,
        "lift": lift,
        "judged": finite | alike,
    }


class Case(tuple):
    """(native, exact, nudged, got), without their bytes in messages."""

    def __repr__(self) -> str:
        return f"Case({self[0].dtype}{list(self[0].shape)})"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """native, exact, nudged, got: near one another, some elements special, sometimes in another layout."""
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    wide = (*shape, 2) if dtype == "complex64" else shape
    exact = rng.standard_normal(wide) * 10.0 ** draw(st.integers(-5, 4))
    unit = tolerance.UNIT[dtype] * 10.0 ** rng.uniform(
        0, draw(st.sampled_from([0, 3])), (wide[0], *(1,) * (len(wide) - 1))
    )

    def near(scale: float) -> np.ndarray:
        found = exact * (1 + scale * unit * rng.standard_normal(wide))
        for _ in range(draw(st.sampled_from([0, 0, 1, 3])) if found.size > 2 else 0):
            found.flat[draw(st.integers(0, found.size - 1))] = draw(st.sampled_from(SPECIAL))
        return found

    def host(values: np.ndarray, kind: str) -> HostTensor:
        like = HostTensor.of(np.zeros(shape, np.complex64 if kind in COMPLEX else np.float64), kind)
        with np.errstate(all="ignore"):
            return HostTensor.from_f64(values, like)

    exact_dtype = "complex128" if dtype == "complex64" else "float64"
    nudged = [host(near(scale), exact_dtype) for scale in (1.0, 4.0, 4.0)]
    native, got = host(near(1.0), dtype), host(near(draw(st.sampled_from([0.0, 1.0, 2.0, 5.0, 1e3]))), dtype)
    return Case((native, host(near(0.0), exact_dtype), nudged, got))


@settings(max_examples=400, deadline=None)
@given(cases(), st.sampled_from([2.0, 4.0]))
def test_budgets_are_those_of_whole_arrays(case: Case, c: float) -> None:
    native, exact, nudged, got = case
    rule = tolerance.strict_rule("output", native, exact, nudged, c=c, reduction=64)
    whole = whole_rule(native, exact, nudged, c)
    for name in ("expected", "element", "row", "lift"):
        assert np.array_equal(getattr(rule, name), whole[name], equal_nan=True), name
    assert (rule.judged is None and whole["judged"].all()) or np.array_equal(rule.judged, whole["judged"])
    other = Rule("output", rule.spec, whole["expected"], whole["element"], whole["row"], rule.row_length, whole["lift"])
    if rule.judged is None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hipwright.verify.compare.worst_within", lambda got, rule: None)
            slow = compare_leaf(got, other)
        fast = compare_leaf(got, rule)
        assert (fast.ok, fast.where, fast.wrong, fast.message) == (slow.ok, slow.where, slow.wrong, slow.message)
        assert fast.worst_error == pytest.approx(slow.worst_error, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(cases(), st.data())
def test_what_is_surely_wrong_does_not_pass(case: Case, data: st.DataObject) -> None:
    """The screen of a few blocks refuses no answer that the whole comparison lets pass."""
    native, exact, nudged, got = case
    rule = tolerance.strict_rule("output", native, exact, nudged, c=4.0, reduction=64)
    values = got.to_f64()
    if data.draw(st.booleans()) and values.size > 300:  # wrong in one place, which no block need show
        values.flat[data.draw(st.integers(0, values.size - 1))] += 1.0
    shown = HostTensor.from_f64(values, HostTensor.of(np.zeros(values.shape)))
    if screen.surely_wrong(lambda place: values.reshape(-1)[place], rule):
        assert not compare_leaf(shown, rule).ok


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["int64", "int32", "bool", "float32"]), st.integers(0, 3))
def test_evidence_is_the_same_with_and_without_the_screen(seed: int, dtype: str, kind: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (40, 33)
    some = [rng.integers(0, 3, shape), np.ones(shape), np.arange(1320).reshape(shape), np.zeros(shape)]
    values = some[kind]
    exact = HostTensor.of(values.astype(bool) if dtype == "bool" else values, dtype)
    wide = HostTensor.of(values.astype(np.float64)) if dtype == "float32" else exact
    rule = tolerance.strict_rule("output", exact, wide, [wide] * 3, c=4.0, reduction=8)
    inputs = [HostTensor.of(values, "int64"), exact]
    found = case_evidence_of(Expected(rule), inputs, Expected(rule))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hipwright.verify.degenerate.surely_wrong", lambda answer, rule: False)
        assert case_evidence_of(Expected(rule), inputs, Expected(rule)) == found


def test_the_screen_sees_what_is_wrong_everywhere() -> None:
    rng = np.random.default_rng(5)
    exact = HostTensor.of(rng.standard_normal((64, 64)))
    native = HostTensor.of(exact.to_f64().astype(np.float32))
    rule = tolerance.strict_rule("output", native, exact, [exact] * 3, c=4.0, reduction=8)
    assert screen.surely_wrong(lambda place: np.zeros(place.stop - place.start), rule)
    assert not screen.surely_wrong(lambda place: rule.expected.reshape(-1)[place], rule)


def test_the_finite_part() -> None:
    values = np.array([1.0, -3.0, np.inf, np.nan] * 100)
    assert screen.finite_part(values) == (0.5, 3.0)
    assert screen.finite_part(np.full(300, np.nan)) == (0.0, 0.0)
