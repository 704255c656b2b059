"""Budgets: tight enough for a narrower format to fail, wide enough for another order of summation to pass."""

from __future__ import annotations

import numpy as np
import pytest

from hipwright.tensors import HostTensor
from hipwright.verify.compare import compare
from hipwright.verify.degenerate import case_evidence_of
from hipwright.verify.expected import Expected
from hipwright.verify.inputs import nudge
from hipwright.verify.inputs.exactness import whole_numbers
from hipwright.verify.tolerance import find_gather, floor, reduction_length, row_length, strict_rule

RNG = np.random.Generator(np.random.Philox(11))
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Every test draws the same numbers, whatever ran before it in its process."""
    RNG.bit_generator.state = START


def host(values: np.ndarray, dtype: str = "float32") -> HostTensor:
    return HostTensor.from_f64(np.asarray(values, np.float64), HostTensor.of(np.zeros(np.shape(values)), dtype))


def matmul_rule(x: np.ndarray, w: np.ndarray):
    exact = x.astype(np.float64) @ w.astype(np.float64)
    nudged = nudge([host(x)], 1)[0].to_f64() @ nudge([host(w)], 2)[0].to_f64()
    return strict_rule(
        "output", host(x @ w), HostTensor.of(exact), [HostTensor.of(nudged)], c=3.0, reduction=x.shape[1]
    )


def serial(x: np.ndarray, w: np.ndarray, dtype: type) -> np.ndarray:
    """One term after the other, each partial sum rounded: the least accurate honest order."""
    total = np.zeros((x.shape[0], w.shape[1]), dtype)
    for k in range(x.shape[1]):
        total = (total + x[:, k : k + 1].astype(dtype) * w[k].astype(dtype)).astype(dtype)
    return total.astype(np.float64)


@pytest.mark.parametrize("inner", [16, 257, 1024])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_serial_summation_passes_and_half_precision_fails(inner: int, shift: float) -> None:
    x = (RNG.standard_normal((24, inner)) + shift).astype(np.float32)
    w = RNG.standard_normal((inner, 48)).astype(np.float32)
    rule = Expected(matmul_rule(x, w))
    assert compare(host(serial(x, w, np.float32)), rule).ok
    assert not compare(host(x.astype(np.float16).astype(np.float64) @ w.astype(np.float16).astype(np.float64)), rule).ok
    assert not compare(host(serial(x, w, np.float16)), rule).ok


def test_ten_bits_of_mantissa_are_not_float32() -> None:
    x, w = (RNG.standard_normal(s).astype(np.float32) for s in ((32, 128), (128, 32)))

    def tf32(v: np.ndarray) -> np.ndarray:
        return (((v.view(np.uint32) + 0x1000) >> 13) << 13).view(np.float32)

    assert not compare(host(tf32(x).astype(np.float64) @ tf32(w)), Expected(matmul_rule(x, w))).ok


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, dtype: type) -> np.ndarray:
    """Sums one term after the other, in powers of two."""
    scores = np.zeros((q.shape[0], k.shape[0]), dtype)
    for i in range(q.shape[1]):
        scores = (scores + q[:, i : i + 1].astype(dtype) * dtype(1.4426950408889634) * k[:, i].astype(dtype)).astype(
            dtype
        )
    p = np.exp2((scores - scores.max(1, keepdims=True)).astype(dtype))
    return ((p @ v.astype(dtype)) / p.sum(1, keepdims=True)).astype(np.float64)


def attention_rule(shift: float):
    """(the rule, the float64 result, q, k, v): two or three large scores decide a row."""
    drawn = np.random.Generator(np.random.Philox(int(shift)))  # the same whichever tests run before
    q, k, v = ((drawn.standard_normal((n, 32)) + shift).astype(np.float32) for n in (512, 128, 128))
    nudged = [leaf.to_f64() for leaf in nudge([host(x) for x in (q, k, v)], 1)]

    def exact(q, k, v):
        scores = q @ k.T
        p = np.exp(scores - scores.max(1, keepdims=True))
        return (p @ v) / p.sum(1, keepdims=True)

    want = exact(*(x.astype(np.float64) for x in (q, k, v)))
    values = HostTensor.of(want), [HostTensor.of(exact(*nudged))]
    return strict_rule("output", host(exact(q, k, v)), *values, c=4.0, reduction=128), want, q, k, v


@pytest.mark.parametrize("shift", [0.0, 8.0, 32.0])
def test_rows_that_few_terms_decide_are_not_measured_by_a_lucky_draw(shift: float) -> None:
    rule, want, q, k, v = attention_rule(shift)
    honest = attention(q, k, v, np.float32)
    assert compare(host(honest), Expected(rule)).ok
    assert not compare(host(want + 10 * (honest - want)), Expected(rule)).ok, "ten times the error is another kernel"
    for wrong in (want[::-1], np.where(np.arange(512)[:, None] == 300, want.mean(0), want)):
        assert not compare(host(wrong), Expected(rule)).ok
    assert not compare(host(attention(q.astype(np.float16), k.astype(np.float16), v, np.float32)), Expected(rule)).ok


def test_a_sum_of_equal_terms_rounds_the_same_way_step_after_step() -> None:
    """A serial LayerNorm of rows that are mostly zero: every such element adds the same square."""
    x = RNG.standard_normal((64, 192)).astype(np.float32) * (RNG.random((64, 192)) < 0.1)

    def norm(x, sum_of):
        centred = x - (sum_of(x) / x.dtype.type(192))[:, None]
        return centred / np.sqrt(sum_of(centred * centred) / x.dtype.type(192) + x.dtype.type(1e-5))[:, None]

    def in_turn(x):
        return np.add.accumulate(x, axis=1, dtype=x.dtype)[:, -1]

    want = HostTensor.of(norm(x.astype(np.float64), lambda x: x.sum(1)))
    native = host(norm(x.astype(np.float32), lambda x: x.astype(np.float64).sum(1).astype(np.float32)))
    serial = host(norm(x.astype(np.float32), in_turn))
    rule = strict_rule("output", native, want, [want], c=4.0, reduction=192, near_constant=True)
    assert compare(serial, Expected(rule)).ok
    far = want.to_f64() * (1 + 2e-5)
    assert not compare(host(far), Expected(rule)).ok


def test_floors_follow_the_notes() -> None:
    assert floor("float32", 192, near_constant=True) == pytest.approx(48 * 2**-24)
    assert floor("float32", 10) == floor("float32", 64) == 1e-6
    assert floor("float32", 1024) == pytest.approx(2 * 32 * 2**-24)
    assert floor("float32", 4096) == pytest.approx(2 * 64 * 2**-24)
    assert (floor("float16", 9999), floor("bfloat16", 9999)) == (1e-3, 8e-3)


def test_reduction_length_sees_sums_products_and_norms() -> None:
    x, w = host(np.zeros((8, 300))), host(np.zeros((16, 3, 5, 5)))
    assert reduction_length([x], [], 1) == 2400
    assert reduction_length([host(np.zeros((2, 3, 9, 9)))], [w], 2 * 16 * 81) == 75
    assert reduction_length([x], [], 2400) == 300


def test_short_rows_are_judged_together() -> None:
    assert row_length((10, 64)) == 64
    assert row_length((10, 8, 4)) == 32
    assert row_length((5, 3)) == 15
    assert row_length(()) == 1


@pytest.mark.parametrize(("keepdim", "reduce"), [(False, np.argmax), (True, np.argmin)])
def test_selections_are_recognised(keepdim: bool, reduce) -> None:
    source = RNG.integers(0, 4, (5, 7, 3)).astype(float)
    index = reduce(source, axis=1, keepdims=keepdim)
    found = find_gather(index, [RNG.standard_normal((9, 9)), source])
    assert found is not None and found.dim == 1 and found.same_choice(index).all()
    assert find_gather(RNG.integers(0, 7, (5, 3)), [source]) is None


def mostly_zeros(seed: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size,) * 3) * (rng.random((size,) * 3) < 0.1)


def chosen(source: np.ndarray, values: np.ndarray, dim: int, last: bool) -> np.ndarray:
    """The first or the last index along `dim` that has the value."""
    found = np.flip(source == values, dim) if last else source == values
    first = found.argmax(dim, keepdims=True)
    return source.shape[dim] - 1 - first if last else first


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("told", [True, False])
def test_an_index_into_a_cube_of_mostly_zeros_is_judged_along_its_own_dimension(rank, dim, told) -> None:
    several = refused = 0
    for seed in range(100):
        source = mostly_zeros(seed, 4)
        values = np.sort(source, dim).take([rank], dim)
        one, other = (np.squeeze(chosen(source, values, dim, last), dim) for last in (False, True))
        flat = np.squeeze(values, dim)
        found = find_gather(one, [source], [flat + 1.0, flat] if told else [])
        assert found is not None and found.same_choice(other).all()
        several += bool(find_gather(one, [source]).others)
        if told and not found.others:
            assert found.dim == dim
            wrong = np.where(flat == 0, np.squeeze((source != 0).argmax(dim, keepdims=True), dim), one)
            here = np.squeeze(np.take_along_axis(source, np.expand_dims(wrong, dim), dim), dim)
            assert found.same_choice(wrong).tolist() == (here == flat).tolist()
            refused += bool((here != flat).any())
    assert several > 3 and (not told or refused > 3)


def test_several_indices_into_a_square_of_mostly_equals_are_judged_by_the_values_beside_them() -> None:
    source = np.zeros((4, 4))
    source[0, 0] = 1.0
    index = np.argsort(source, axis=1, kind="stable")
    rule = find_gather(index, [source], [np.sort(source, axis=1)])
    assert rule is not None and rule.dim == 1 and rule.several and not rule.others
    assert rule.same_choice(np.array([[3, 2, 1, 0], [3, 2, 1, 0], [1, 0, 2, 3], [0, 1, 2, 3]])).all()
    assert not rule.same_choice(np.array([[0, 1, 2, 3], [0, 0, 1, 2]] * 2))[:2].all(axis=1).any()


# ---------------------------------------------------------------- lint


def expected(values: np.ndarray, dtype: str = "float32") -> Expected:
    exact = HostTensor.of(np.asarray(values, np.float64))
    return Expected({"outputs": strict_rule("output", host(values, dtype), exact, [exact], c=3.0, reduction=8)})


NORMAL = RNG.standard_normal((20, 40))
OTHER = expected(RNG.standard_normal((20, 40)))


@pytest.mark.parametrize(
    ("values", "inputs", "other", "why"),
    [
        (np.zeros((20, 40)), [], OTHER, "zeros"),
        (np.full((20, 40), 3.7), [], OTHER, "a constant"),
        (NORMAL, [host(NORMAL)], OTHER, "an input"),
        (NORMAL, [], expected(NORMAL), "other inputs"),
        (np.zeros((0, 4)), [], OTHER, "empty"),
        (NORMAL, [host(NORMAL + 1)], OTHER, ""),
        (np.array(2.5), [host(NORMAL)], expected(np.array(-1.0)), ""),
    ],
)
def test_a_case_that_proves_nothing_says_why(values, inputs, other, why: str) -> None:
    found = case_evidence_of(expected(values), inputs, other).degenerate
    assert found == "" if not why else why in found


def test_relu_of_positive_inputs_is_no_evidence_but_of_signed_ones_is() -> None:
    positive = np.abs(NORMAL)
    assert "an input" in case_evidence_of(expected(np.maximum(positive, 0)), [host(positive)], OTHER).degenerate
    assert case_evidence_of(expected(np.maximum(NORMAL, 0)), [host(NORMAL)], OTHER).degenerate == ""


def test_zeros_do_not_pass_for_small_outputs() -> None:
    """An absolute tolerance of 1e-2, as other suites have, lets zeros pass for softmax over many columns."""
    small = np.full((4, 4096), 1 / 4096) * RNG.uniform(0.5, 1.5, (4, 4096))
    for dtype in ("float32", "float16", "bfloat16"):
        assert case_evidence_of(expected(small, dtype), [], None).degenerate == ""


def test_values_of_any_size_are_looked_at_without_a_warning() -> None:
    signals = HostTensor("float32", (1,), (1,), 0, np.array([0x7F800001], np.uint32).view(np.uint8))  # a NaN that does
    with np.errstate(all="raise"):
        assert np.isnan(signals.to_f64()).all()
        large, whole = np.array([1e308, -1e308, 3.0]), np.array([5.0, np.nan, -3.0])
        assert not whole_numbers(large, "float64", [host(np.ones(7))]) and whole_numbers(whole, "float64", [])
