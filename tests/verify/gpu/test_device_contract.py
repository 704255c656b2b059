"""The device's comparison agrees with the parent's: budgets, verdict and message, for any pieces."""

from __future__ import annotations

from math import isfinite

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hipwright.records import TensorSpec
from hipwright.task.device import leaf as device_leaf
from hipwright.task.device.compare import LeafComparison, best_constant, blocks_of, constant_blocks, passes
from hipwright.task.device.leaf import DeviceLeaf, add_moved, baseline_errors, find_gather, median, pieces, ties
from hipwright.task.device.stream import Incoming
from hipwright.task.nudges import NUDGES
from hipwright.torchio import DTYPES, from_torch
from hipwright.verify import degenerate, tolerance
from hipwright.verify.compare import compare_leaf
from hipwright.verify.gpu.budget import budget, comparison

SPECIAL = [0.0, 1.0, -1.0, 1e-40, 1e30, float("inf"), float("-inf"), float("nan")]
FLOATS = ["float64", "float32", "float16", "bfloat16"]


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Blocks that end inside rows, so that every way to cut a tensor occurs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_leaf, "BLOCK", 50)
        yield


def _tensor(values: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(np.array(values, order="C")).to(DTYPES[dtype])


def _numbers(dtype: str, shape: tuple[int, ...], c: float) -> dict:
    leaf = {"dtype": dtype, "shape": list(shape), "float": True}
    given = [TensorSpec(dtype=dtype, shape=(2048,), stride=(1,))]
    return budget(leaf, given, {"params": {}, "buffers": {}}, c)


def _leaf(native, exact, nudged, dtype, c, compact=False) -> DeviceLeaf:
    want = torch.empty(native.numel(), dtype=torch.float32 if compact else torch.float64)
    honest = torch.empty(native.numel(), dtype=torch.bfloat16 if compact else torch.float64)
    judged = baseline_errors(native.reshape(-1), exact.reshape(-1), want=want, honest=honest)
    for way, moved in zip(NUDGES, nudged, strict=True):
        add_moved(exact.reshape(-1), moved.reshape(-1), way.size, honest)
    leaf = DeviceLeaf("output", native.dtype, tuple(native.shape), want, exact=False, honest=honest, judged=judged)
    leaf.settle(_numbers(dtype, tuple(native.shape), c))
    return leaf


def _rule(native, exact, nudged, c):
    reduction = tolerance.reduction_length(
        [TensorSpec(dtype="float32", shape=(2048,), stride=(1,))], [], int(np.prod(native.shape))
    )
    return tolerance.strict_rule(
        "output", from_torch(native), from_torch(exact), [from_torch(one) for one in nudged], c=c, reduction=reduction
    )


@st.composite
def _cases(draw):
    """dtype, native, exact, moved, got: near one another, with occasional special values."""
    shape = draw(st.sampled_from([(7,), (3, 40), (4, 5, 13), (2, 3, 64), (130,), (1, 1), (33, 1), (5, 32), ()]))
    dtype = draw(st.sampled_from(FLOATS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    exact = rng.standard_normal(shape) * 10.0 ** draw(st.integers(-6, 6)) * (rng.random(shape) < draw(st.just(0.9)))
    unit = tolerance.UNIT[dtype]

    def near(scale):
        return exact * (1 + scale * unit * rng.standard_normal(shape)) + scale * unit * rng.standard_normal(shape)

    if draw(st.booleans()):  # rows of very different conditioning, where an honest error may be small by chance
        unit = unit * 10.0 ** rng.uniform(0, 3, (*shape[:-1], 1) if shape else ())
    values = [
        exact,
        near(1.0),
        *(near(draw(st.sampled_from([0.5, 5.0])) * abs(way.size)) for way in NUDGES),
        near(draw(st.sampled_from([0.0, 3.0, 40.0, 1e4]))),
    ]
    values = [np.array(value) for value in values]
    for array in values:
        for _ in range(draw(st.integers(0, 2)) if array.size > 1 else 0):
            array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(SPECIAL))
    exact, native, *nudged, got = values
    moved = [torch.from_numpy(one) for one in nudged]
    return dtype, _tensor(native, dtype), torch.from_numpy(exact), moved, _tensor(got, dtype)


def _streamed(leaf: DeviceLeaf, got: torch.Tensor, chunk: int):
    check = LeafComparison(leaf)
    flat = got.reshape(-1)
    for start in range(0, flat.numel(), chunk):
        check.add(flat[start : start + chunk])
    spec = TensorSpec(dtype="float32", shape=tuple(got.shape), stride=tuple(got.stride()))
    return comparison(check.result(), spec)


def _same(a, b, *, near=1e-9):
    assert (a.ok, a.status, a.path, a.total, a.wrong) == (b.ok, b.status, b.path, b.total, b.wrong)
    if isfinite(b.worst_error):
        assert a.worst_error == pytest.approx(b.worst_error, rel=near, abs=1e-300)
    else:
        assert a.worst_error == b.worst_error
    if not b.ok:
        assert a.where == b.where
        assert a.message == b.message
        assert str(a.expected) == str(b.expected) and str(a.got) == str(b.got)


@given(_cases(), st.sampled_from([2.0, 4.0]), st.integers(1, 300))
def test_strict_rule_and_comparison_agree(case, c, chunk):
    dtype, native, exact, nudged, got = case
    rule, leaf = _rule(native, exact, nudged, c), _leaf(native, exact, nudged, dtype, c)
    count = rule.expected.size
    ours = torch.cat([leaf.budget(a, b) for a, b in pieces(0, count, leaf.row_length)])
    np.testing.assert_allclose(ours.numpy(), rule.element.reshape(-1), rtol=1e-12)
    np.testing.assert_allclose(leaf.row.numpy(), rule.row, rtol=1e-12)
    assert (leaf.judged is None) == (rule.judged is None)
    _same(_streamed(leaf, got, chunk), compare_leaf(from_torch(got), rule))


def _near_a_rows_edge(got, rule) -> bool:
    """A passing row's own ratio is not in `worst_error`, nor the growth of its budgets."""
    if rule.row is None or not got.numel():
        return False
    with np.errstate(invalid="ignore"):
        error = np.abs(from_torch(got).to_f64() - rule.expected)
    used = np.isfinite(error) if rule.judged is None else np.isfinite(error) & rule.judged
    error = np.where(used, error, 0.0)
    rows = error.reshape(-1, rule.row_length)
    ratio = np.sqrt(np.mean(rows * rows, axis=1)) / rule.row
    ratio = np.maximum(ratio, (error / rule.element).reshape(rows.shape).max(axis=1))
    return any(bool(((r > 0.9) & (r < 1.1)).any()) for r in (ratio, ratio / rule.lift))


@given(_cases(), st.integers(1, 300))
def test_the_compact_form_says_the_same_but_at_the_very_edge(case, chunk):
    dtype, native, exact, nudged, got = case
    assume(dtype != "float64")
    finite = exact[exact.isfinite()].abs()
    assume(not finite.numel() or 1e-35 < float(finite.max()) < 1e30)
    rule = _rule(native, exact, nudged, 4.0)
    theirs = compare_leaf(from_torch(got), rule)
    assume(not 0.9 < theirs.worst_error < 1.1 and not _near_a_rows_edge(got, rule))
    ours = _streamed(_leaf(native, exact, nudged, dtype, 4.0, compact=True), got, chunk)
    assert (ours.ok, ours.status) == (theirs.ok, theirs.status)
    if isfinite(theirs.worst_error):  # a thirtieth of a budget for the expectation, 2^-6 for the budget
        assert abs(ours.worst_error - theirs.worst_error) <= 1 / 30 + 2**-6 * theirs.worst_error


@given(_cases(), st.integers(1, 300))
def test_kernelbench_rule_agrees(case, chunk):
    dtype, native, _, _, got = case
    leaf = DeviceLeaf("output", native.dtype, tuple(native.shape), native.reshape(-1), exact=False)
    leaf.settle(_numbers(dtype, tuple(native.shape), 4.0))
    _same(
        _streamed(leaf, got, chunk),
        compare_leaf(from_torch(got), tolerance.kernelbench_rule("output", from_torch(native))),
    )


@given(
    arrays.arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(1, 20)), elements=st.integers(-3, 3)),
    st.integers(0, 2**32),
    st.integers(1, 90),
    st.sampled_from(["int64", "int8", "bool"]),
)
def test_integers_are_exact(want, seed, chunk, dtype):
    rng = np.random.default_rng(seed)
    native, nudged = _tensor(want, dtype), _tensor(np.where(rng.random(want.shape) < 0.05, want + 1, want), dtype)
    got = _tensor(np.where(rng.random(want.shape) < rng.choice([0.0, 0.02, 0.3]), want + 1, want), dtype)
    rule = tolerance.strict_rule(
        "output", from_torch(native), from_torch(native), [from_torch(nudged)], c=4.0, reduction=1
    )
    same = (native == nudged).reshape(-1)
    leaf = DeviceLeaf("output", native.dtype, tuple(native.shape), native.reshape(-1), exact=True)
    leaf.judged = None if bool(same.all()) else same
    _same(_streamed(leaf, got, chunk), compare_leaf(from_torch(got), rule))


SELECTIONS = {
    "argmax": lambda x, dim, keepdim: torch.argmax(x, dim, keepdim=keepdim),
    "argmin": lambda x, dim, keepdim: torch.argmin(x, dim, keepdim=keepdim),
    "median": lambda x, dim, keepdim: torch.median(x, dim, keepdim=keepdim).indices,
    "kthvalue": lambda x, dim, keepdim: torch.kthvalue(x, 2, dim, keepdim=keepdim).indices,
    "topk": lambda x, dim, keepdim: torch.topk(x, 2, dim, largest=keepdim).indices,
    "sort": lambda x, dim, keepdim: torch.sort(x, dim, descending=keepdim).indices,
}


@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
    st.sampled_from(sorted(SELECTIONS)),
    st.integers(1, 40),
)
def test_ties_of_an_index_are_right_and_others_are_not(seed, dim, keepdim, select, chunk):
    rng = np.random.default_rng(seed)
    source = torch.from_numpy(rng.integers(0, 4, (3, 5, 6)).astype(np.float32))
    index = SELECTIONS[select](source, dim, keepdim)
    found = find_gather(index, [source])
    assert found is not None and found.dim == dim
    assert found.count == {"topk": 2, "sort": source.shape[dim]}.get(select, 1)
    leaf = DeviceLeaf("output", index.dtype, tuple(index.shape), index.reshape(-1), exact=True, gather=found)
    got = torch.from_numpy(rng.integers(-1, source.shape[dim] + 1, tuple(index.shape)))
    got = torch.where(torch.from_numpy(rng.random(tuple(index.shape)) < 0.8), index, got)
    rule = tolerance.strict_rule(
        "output", from_torch(index), from_torch(index), [from_torch(index)], c=4.0, reduction=1
    )
    gather = tolerance.find_gather(rule.expected, [source.double().numpy()])
    assert gather is not None and ties(found).tolist() == gather.ties().reshape(-1).tolist()
    values = source.gather(dim, index.view(*source.shape[:dim], found.count, *source.shape[dim + 1 :]))
    many = [(source == one).sum(dim, keepdim=True) > 1 for one in values.split(1, dim)]
    assert torch.equal(ties(found), torch.cat(many, dim).reshape(-1))
    rule = type(rule)(path="output", spec=rule.spec, expected=rule.expected, gather=gather)
    _same(_streamed(leaf, got, chunk), compare_leaf(from_torch(got), rule))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_of_several_dimensions_that_fit_the_one_whose_values_are_an_output_counts(dim):
    several = 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        source = torch.randn(4, 4, 4, generator=generator) * (torch.rand(4, 4, 4, generator=generator) < 0.1)
        values, index = torch.kthvalue(source, 2, dim)
        outputs = [values + 1.0, values.double()]
        mine, known = find_gather(index, [source], outputs), [one.numpy() for one in outputs]
        hosts = tolerance.find_gather(index.numpy(), [source.double().numpy()], known)
        assert mine is not None and hosts is not None
        assert (mine.dim, mine.count > 1) == (hosts.dim, hosts.several)
        assert torch.equal(mine.values, values.reshape(-1))
        several += find_gather(index, [source]).dim != dim
    assert several or dim == 0


def test_an_index_that_selects_nothing_known_is_exact():
    source = torch.randn(4, 5)
    assert find_gather(torch.tensor([4, 4, 4, 4]), [source[:, :4]]) is None
    assert find_gather(torch.tensor([0, 1, 2, 3]), [torch.randn(4, 5, 6)]) is None
    longer = torch.tensor([0, 1, 2, 1, 0, 2])
    assert find_gather(longer, [torch.randn(3)]) is None
    assert tolerance.find_gather(longer.numpy(), [np.array([1.0, 2.0, 3.0])]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_the_median_is_numpys(values):
    assert median(torch.tensor(values, dtype=torch.float64)) == np.median(values)


@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 120), st.integers(1, 60))
@example(0, 64, 64, 16)
def test_pieces_are_whole_rows_or_within_one(start, count, length, limit):
    at = start
    for a, b in pieces(start, start + count, length, limit):
        assert a == at < b and b - a <= limit
        assert (a % length == 0 and b % length == 0) or a // length == (b - 1) // length
        at = b
    assert at == start + count


@given(_cases())
def test_lint_agrees_on_zeros_and_constants(case):
    dtype, native, exact, nudged, got = case
    rule, leaf = _rule(native, exact, nudged, 4.0), _leaf(native, exact, nudged, dtype, 4.0)
    assert passes(leaf, constant_blocks(leaf, 0)) == degenerate._constant_passes(0, rule)
    assert best_constant(leaf) == pytest.approx(float(degenerate._usual_value(rule)), rel=1e-9, abs=1e-300)
    assert passes(leaf, blocks_of(got)) == compare_leaf(from_torch(got), rule).ok


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
def test_layouts_arrive_in_storage_order(order):
    shape = (3, 7, 10)
    exact = torch.randn(shape, dtype=torch.float64)
    leaf = _leaf(exact.float(), exact, [exact] * 3, "float32", 4.0)
    got = exact.float().permute(order).contiguous().permute(tuple(np.argsort(order)))
    got[1, 2, 3] += 1.0
    host = from_torch(got)
    incoming = Incoming(LeafComparison(leaf), list(got.stride()))
    raw = torch.from_numpy(host.storage)
    for start in range(0, raw.numel(), 96):
        incoming.add(start, raw[start : start + 96])
    found = comparison(incoming.result(), host.spec)
    assert found.where == (1, 2, 3) and not found.ok
    _same(found, compare_leaf(host, _rule(exact.float(), exact, [exact] * 3, 4.0)), near=1e-6)


def test_chunks_out_of_turn_or_missing_are_refused():
    exact = torch.randn(64, dtype=torch.float64)
    raw = from_torch(exact.float()).storage
    leaf = _leaf(exact.float(), exact, [exact] * 3, "float32", 4.0)
    incoming = Incoming(LeafComparison(leaf), [1])
    incoming.add(0, torch.from_numpy(raw[:64]))
    with pytest.raises(ValueError, match="expected whole elements from 64"):
        incoming.add(128, torch.from_numpy(raw[128:]))
    with pytest.raises(ValueError, match="whole elements"):
        incoming.add(64, torch.from_numpy(raw[64:67]))
    with pytest.raises(ValueError, match="16 of 64"):
        incoming.result()
    with pytest.raises(ValueError, match="more values"):
        LeafComparison(leaf).add(torch.zeros(65))
