"""Input families: reproducible, in the task's domain, and as their names say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.tensors import HostTensor, tensor_leaves
from hipwright.verify import inputs
from hipwright.verify.inputs import (
    FLOAT_FAMILIES,
    LAYOUTS,
    MIXED_AXES,
    Domain,
    Special,
    applicable,
    make,
    nudge,
    observe,
    randomise_state,
    restride,
    whole_state,
)

RNG = np.random.Generator(np.random.Philox(3))
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Every test draws the same numbers, whatever ran before it in its process."""
    RNG.bit_generator.state = START


def tensor(values: np.ndarray, dtype: str = "float32") -> HostTensor:
    return HostTensor.from_f64(np.asarray(values, np.float64), HostTensor.of(np.zeros(np.shape(values)), dtype))


def draw(shape=(40, 50), dtype="float32"):
    return [tensor(RNG.standard_normal(shape), dtype)]


@settings(max_examples=80, deadline=None)
@given(
    family=st.sampled_from(sorted([*FLOAT_FAMILIES, *MIXED_AXES, *LAYOUTS])),
    dtype=st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
    shape=st.lists(st.integers(0, 6), max_size=4).map(tuple),
    seed=st.integers(0, 2**40),
)
def test_every_family_keeps_shape_and_dtype_and_is_finite(family, dtype, shape, seed) -> None:
    base = [tensor(np.zeros(shape), dtype)]
    domain = Domain((inputs.InputLeaf(fixed=False, low=-1.0, high=1.0),))
    first = make(base, family, domain, seed, "w")[0]
    again = make(base, family, domain, seed, "w")[0]
    assert (first.shape, first.dtype) == (tuple(shape), dtype)
    assert np.isfinite(first.to_f64()).all()
    assert np.array_equal(first.bits(), again.bits()), "the same key gives the same values"


def test_seed_workload_and_leaf_all_matter() -> None:
    base = [*draw(), *draw()]
    domain = observe(base, [*draw(), *draw()])
    one = make(base, "normal", domain, 1, "w")
    assert not np.array_equal(one[0].bits(), one[1].bits())
    assert not np.array_equal(one[0].bits(), make(base, "normal", domain, 2, "w")[0].bits())
    assert not np.array_equal(one[0].bits(), make(base, "normal", domain, 1, "v")[0].bits())


def values(family: str, shape=(64, 65), dtype="float32") -> np.ndarray:
    base = [tensor(RNG.standard_normal(shape), dtype)]
    return make(base, family, observe(base, draw(shape, dtype)), 5, "w")[0].to_f64()


def test_families_are_what_they_say() -> None:
    assert 25 < values("shifted").mean() < 35
    assert 20 <= np.abs(values("outliers")).max() <= 100 and np.median(np.abs(values("outliers"))) < 2
    assert 0.85 < (values("zeros90") == 0).mean() < 0.95
    assert np.ptp(values("constant_rows"), axis=-1).max() == 0
    assert (values("constant_rows")[0] == 0).all() and (values("constant_rows")[:, 0] == 0).sum() < 40
    scales = np.log10(np.abs(values("scales")))
    assert -1.1 < scales.min() < 0 and 5 < scales.max() <= 6
    assert np.log10(np.abs(values("scales", dtype="float16"))).max() <= 2
    assert (np.diff(values("sorted"), axis=-1) >= 0).all()
    cancelling = values("cancelling", (32, 64))
    assert abs(cancelling.sum()) < 0.02 * np.abs(cancelling).sum()
    assert len(np.unique(values("ties"))) == 5
    assert (np.abs(values("denormals")[values("denormals") != 0]) < 1e-38).any()
    assert values("large").std() > 1e3


@pytest.mark.parametrize(
    ("dtype", "narrower"), [("float32", "float16"), ("float32", "bfloat16"), ("float16", "bfloat16")]
)
def test_mantissa_probes_do_not_survive_a_narrower_format(dtype: str, narrower: str) -> None:
    probes = values("mantissa", dtype=dtype)
    assert not np.array_equal(tensor(probes, narrower).to_f64(), probes)


def test_integers_and_labels_stay_as_get_inputs_made_them() -> None:
    labels = tensor(np.sign(RNG.standard_normal(200)))
    other = tensor(np.sign(RNG.standard_normal(200)))
    ints = HostTensor.of(RNG.integers(0, 9, 20))
    domain = observe([labels, ints], [other, HostTensor.of(RNG.integers(0, 9, 20))])
    made = make([labels, ints], "normal", domain, 1, "w")
    assert made[0] is labels and made[1] is ints
    assert "normal" not in applicable([labels, ints], domain) and "strided" in applicable([labels, ints], domain)


@pytest.mark.parametrize("family", [*FLOAT_FAMILIES, *MIXED_AXES, *LAYOUTS, "named_values", "nan_values", "infinities"])
@pytest.mark.parametrize("shape", [(2,), (9,), (4, 9)])
@pytest.mark.parametrize("restricted", [False, True])
def test_a_list_in_order_stays_in_order_in_every_family(family: str, shape, restricted: bool) -> None:
    """Else a search in it, or bins between such edges, have no defined result."""
    first, second = ([tensor(np.sort(RNG.random(shape), axis=-1)), tensor(RNG.random(shape))] for _ in range(2))
    domain = Domain(observe(first, second).leaves, restricted=restricted)
    assert domain.leaves[0].rises and (shape == (2,) or not domain.leaves[1].rises)
    special = Special(floats=(0.5, -3.0), nonfinite=True)
    moved = make(first, family, domain, 7, "w", special)
    edges = moved[0].to_f64()
    edges = edges[~np.isnan(edges).any(-1)] if edges.ndim > 1 else edges[~np.isnan(edges)]
    assert (np.diff(edges, axis=-1)[np.isfinite(edges[..., :-1])] >= 0).all()
    assert family != "normal" or shape == (2,) or not (np.diff(moved[1].to_f64()) >= 0).all()


def test_zeros_triangles_and_rows_of_equals_are_no_lists_in_order() -> None:
    for values in (np.zeros(9), np.triu(np.ones((9, 9))), np.repeat(RNG.random((4, 1)), 9, 1), np.linspace(1, 0, 9)):
        assert not observe([tensor(values)], [tensor(values)]).leaves[0].rises


def test_masks_go_fully_on_and_off_only_where_there_are_some() -> None:
    mask = HostTensor.of(RNG.random(10) > 0.5)
    base = [*draw(), mask]
    domain = observe(base, [*draw(), mask])
    assert make(base, "masks_on", domain, 1, "w")[1].bits().all()
    assert not make(base, "masks_off", domain, 1, "w")[1].bits().any()
    assert "masks_on" in applicable(base, domain)
    assert "masks_on" not in applicable(draw(), observe(draw(), draw()))


def test_triangles_and_symmetry_of_the_given_inputs_are_kept() -> None:
    def lower():
        return tensor(np.tril(RNG.standard_normal((12, 12))))

    def symmetric():
        a = RNG.standard_normal((9, 9))
        return tensor(a + a.T)

    triangle = make([lower()], "normal", observe([lower()], [lower()]), 1, "w")[0].to_f64()
    assert np.array_equal(triangle, np.tril(triangle)) and (triangle != 0).sum() > 60
    same = make([symmetric()], "outliers", observe([symmetric()], [symmetric()]), 1, "w")[0].to_f64()
    assert np.array_equal(same, same.T)


@settings(max_examples=40, deadline=None)
@given(family=st.sampled_from(sorted(FLOAT_FAMILIES)))
def test_restricted_leaves_stay_probabilities(family: str) -> None:
    def rows():
        p = RNG.random((20, 30))
        return tensor(p / p.sum(-1, keepdims=True))

    domain = Domain(observe([rows()], [rows()]).leaves, restricted=True)
    made = make([rows()], family, domain, 1, "w")[0].to_f64()
    assert (made >= 0).all() and made.max() <= 1 and np.allclose(made.sum(-1), 1, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), max_size=4).map(tuple),
    dtype=st.sampled_from(["float64", "float32", "float16", "bfloat16", "int32"]),
)
def test_restriding_changes_the_layout_and_nothing_else(shape, dtype) -> None:
    given_ = tensor(RNG.integers(-9, 9, shape).astype(float), dtype)
    out = restride(given_)
    assert np.array_equal(out.bits(), given_.bits()) and out.offset > 0
    if given_.numel > 1 and given_.is_float:
        flat = HostTensor(dtype, (given_.numel,), (1,), 0, out.storage)
        assert not np.array_equal(flat.to_f64(), given_.to_f64().reshape(-1)), "reading it as dense gives other values"


def test_a_nudge_is_small_and_does_not_average_out() -> None:
    base = draw((100, 64))
    moved = nudge(base, 4)[0].to_f64()
    relative = np.abs(moved - base[0].to_f64()) / np.abs(base[0].to_f64())
    assert 0 < relative.max() < 64 * 2.0**-24
    sums = np.abs(moved.sum(1) - base[0].to_f64().sum(1)) / np.abs(base[0].to_f64()).sum(1)
    assert np.median(sums) > 2.0**-25


def test_no_parameter_keeps_an_inert_default() -> None:
    def state(seed: int):
        rng = np.random.default_rng(seed)
        return {
            "params": {
                "w": tensor(rng.standard_normal((4, 5))),
                "gamma": tensor(np.ones(6)),
                "bias": tensor(np.zeros(6)),
                "scale": tensor(np.array(0.125)),
            },
            "buffers": {
                "var": tensor(np.ones(6)),
                "mean": tensor(np.zeros(6)),
                "table": tensor(np.sin(np.arange(12.0))),
                "count": HostTensor.of(np.array(0)),
            },
        }

    one = state(1)
    made = randomise_state(one, state(2), 9, "0")
    params, buffers = made["params"], made["buffers"]
    assert params["w"] is one["params"]["w"], "drawn at random already"
    assert (params["gamma"].to_f64() > 0).all() and not (params["gamma"].to_f64() == 1).any()
    assert (params["bias"].to_f64() != 0).all() and params["scale"].to_f64() not in (0.0, 0.125)
    assert (buffers["var"].to_f64() > 0).all() and (buffers["mean"].to_f64() != 0).all()
    assert buffers["table"] is one["buffers"]["table"] and buffers["count"] is one["buffers"]["count"]


def test_tied_weights_stay_tied() -> None:
    shared = tensor(np.zeros(8))
    state = {"params": {"a": shared, "b": shared}, "buffers": {}}
    made = randomise_state(state, state, 1, "0")["params"]
    assert made["a"].storage is made["b"].storage


def test_leaves_used_twice_stay_one() -> None:
    x = draw()[0]
    made = make([x, x], "normal", observe([x, x], [*draw(), *draw()]), 1, "w")
    assert len({id(t) for t in tensor_leaves(made)}) == 1


@settings(max_examples=80, deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    shape=st.lists(st.integers(1, 5), max_size=4).map(tuple),
    dtype=st.sampled_from(["float64", "float32", "float16", "bfloat16", "int64", "bool"]),
)
def test_layouts_keep_shape_and_dtype_and_but_for_expansion_the_values(layout: str, shape, dtype: str) -> None:
    before = tensor(RNG.integers(0, 2, shape).astype(float), dtype)
    after = LAYOUTS[layout](before)
    assert (after.shape, after.dtype) == (before.shape, dtype)
    if layout == "expanded":
        axis = next((axis for axis, size in enumerate(shape) if size > 1), None)
        assert axis is None or after.stride[axis] == 0
        first = before.bits() if axis is None else before.bits().take([0], axis)
        assert np.array_equal(after.bits(), np.broadcast_to(first, before.shape))
    else:
        assert np.array_equal(after.bits(), before.bits())
    if layout == "offset":
        assert after.offset == 1, "aligned to one element alone"


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "float16", "bfloat16"]),
    seed=st.integers(0, 99),
)
def test_sums_of_the_exact_family_are_exact_in_any_order_and_small(shape, dtype: str, seed: int) -> None:
    base = [tensor(np.zeros(shape), dtype)]
    got = make(base, "exact", Domain((inputs.InputLeaf(fixed=False, low=-1.0, high=1.0),)), seed, "w")[0].to_f64()
    assert np.array_equal(got, np.round(got)), "whole numbers, not rounded by the dtype"
    flat = got.reshape(-1).astype(np.float32)
    order = np.random.default_rng(seed).permutation(flat.size)
    assert float(np.add.accumulate(flat)[-1]) == float(np.add.accumulate(flat[order])[-1])
    if max(shape) > 4:
        assert np.abs(got.sum()) <= np.abs(got).sum() / 2 + 12


def test_spikes_reach_every_position_of_an_axis_that_has_as_many_rows() -> None:
    spikes = values("spikes", (64, 48))
    assert set(np.abs(spikes).argmax(axis=1)) == set(range(48))


def test_slices_of_a_mixed_family_belong_to_different_families() -> None:
    rows = values("mixed_first", (40, 50))
    assert np.abs(rows[0]).max() > 1e3 and 25 < rows[1].mean() < 35 and np.ptp(rows[4]) == 0
    columns = values("mixed_last", (40, 50))
    assert np.abs(columns[:, 0]).max() > 1e3 and 25 < columns[:, 1].mean() < 35


def test_named_values_bounds_and_nonfinite_values_come_from_what_the_reference_says() -> None:
    labels, data = HostTensor.of(RNG.integers(0, 9, 40)), draw((5, 8))[0]
    base, domain = [data, labels], observe([data, labels], [draw((5, 8))[0], labels])
    special = Special(integers=(-100,), floats=(2.5,), nonfinite=True, arithmetic=True)
    assert set(applicable(base, domain, special)) > {"named_values", "nan_values", "infinities", "wide_integers"}
    assert not {"named_values", "nan_values", "wide_integers"} & set(applicable(base, domain))
    named = make(base, "named_values", domain, 1, "w", special)
    assert (named[1].bits() == -100).any() and (named[1].bits() >= 0).any() and (named[0].to_f64() == 2.5).any()
    assert np.isnan(make(base, "nan_values", domain, 1, "w", special)[0].to_f64()).any()
    assert np.isinf(make(base, "infinities", domain, 1, "w", special)[0].to_f64()).any()
    assert set(make(base, "integer_bounds", domain, 1, "w", special)[1].bits()) <= set(labels.bits())
    assert np.abs(make(base, "wide_integers", domain, 1, "w", special)[1].bits()).max() > 1 << 32


def test_ascending_offsets_are_no_integers_to_redraw() -> None:
    offsets = HostTensor.of(np.array([0, 3, 3, 7, 9]))
    assert "integer_bounds" not in applicable([offsets], observe([offsets], [offsets]))


def test_whole_parameters_are_whole_and_stay_tied() -> None:
    shared = tensor(RNG.standard_normal((3, 4)))
    state = {"params": {"a": shared, "b": shared, "c": tensor(RNG.standard_normal(7))}, "buffers": {}}
    made = whole_state(state, 1)["params"]
    assert made["a"].storage is made["b"].storage and np.ptp(made["a"].to_f64()) == 0
    assert np.array_equal(made["c"].to_f64(), np.round(made["c"].to_f64())) and (made["c"].to_f64() != 0).all()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_accumulator_of_fewer_digits_shows_on_the_exact_family(dtype: str, seed: int) -> None:
    """64 lanes that add in float16, and then each other's sums, miss the exact sum of a row."""
    base = [tensor(np.zeros((29, 251)), dtype)]
    domain = Domain((inputs.InputLeaf(fixed=False, low=-1.0, high=1.0),))
    rows = make(base, "exact", domain, seed, "w")[0].to_f64()
    lanes = np.zeros((29, 64), np.float16)
    for start in range(0, 251, 64):
        part = rows[:, start : start + 64].astype(np.float16)
        lanes[:, : part.shape[1]] += part
    while lanes.shape[1] > 1:
        lanes = lanes[:, ::2] + lanes[:, 1::2]
    assert (lanes[:, 0].astype(float) != rows.sum(axis=1)).any()


@pytest.mark.parametrize(("dtype", "low"), [("float32", 1e-9), ("float16", 2e-5)])
def test_tiny_values_reach_far_below_their_largest_scale(dtype: str, low: float) -> None:
    """In rows of one scale, and among the elements of a row."""
    domain = Domain((inputs.InputLeaf(fixed=False, low=-1.0, high=1.0),))
    rows = np.abs(make([tensor(np.zeros((40, 33)), dtype)], "tiny", domain, 3, "w")[0].to_f64())
    assert 1e-4 < rows[::2].max() < 1e-2
    assert (rows.max(axis=1) < low).sum() >= 2, "whole rows"
    mixed = rows[3::4]
    assert (mixed > 10 * low).any() and (mixed < low).any()
