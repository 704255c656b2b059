"""Other shapes: the choices alone, then for real tasks."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.task.host.draw import resize, resize_all, rises
from hipwright.task.sizes import ShapeSpace, elements, shape_name
from hipwright.tensors import tensor_leaves


def rows_free(width):
    """x (n, width) @ w: rows may change, columns may not."""
    return lambda shapes: elements(shapes) * 2 if shapes[0][1] == width else None


def test_equal_sizes_change_together_and_split_by_dimension():
    pair = ShapeSpace(((64, 32), (64, 32)), lambda s: elements(s) if s[0] == s[1] else None)
    assert [symbol.places for symbol in pair.symbols] == [((0, 0), (1, 0)), ((0, 1), (1, 1))]
    square = ShapeSpace(((64, 64),), rows_free(64))
    assert [symbol.places for symbol in square.symbols] == [((0, 0),)]


def test_one_is_no_evidence_that_a_size_is_free():
    broadcast = ShapeSpace(((8, 16),), lambda s: elements(s) if s[0][1] in (1, 16) else None)
    assert [symbol.size for symbol in broadcast.symbols] == [8]


def test_shrinking_keeps_divisors_that_the_reference_needs():
    space = ShapeSpace(((128, 512),), lambda s: elements(s) if s[0][1] % 8 == 0 else None)
    ((rows, columns),) = space.shrink(3000)
    assert rows * columns <= 3000 and columns % 8 == 0 and rows % 2 == 1 and rows > 1


def test_nothing_to_change_is_none_and_no_derived():
    space = ShapeSpace(((300, 300),), lambda s: elements(s) if s == ((300, 300),) else None)
    assert space.shrink(1000) is None and space.derived() == []
    assert space.shrink(100_000) == ((300, 300),)


def test_outputs_that_cannot_shrink_leave_the_other_sizes_small():
    weights = 5_000_000  # gradients of parameters: as many at every shape
    space = ShapeSpace(((4096, 768),), lambda s: weights + elements(s) if s[0][1] == 768 else None)
    ((rows, width),) = space.smallest(1 << 16)
    assert 1 < rows < 200 and width == 768
    assert len(space.derived()) >= 3 and all(1 <= rows < 400 for ((rows, _),) in space.derived())
    assert ShapeSpace(((4096, 768),), lambda s: 10**9 + elements(s)).smallest(1 << 16) is None


def test_a_size_of_a_billion_takes_no_longer_than_a_small_one():
    started = time.process_time()
    found = ShapeSpace(((10**9 + 9,), (10**9 + 9,)), elements).derived()
    assert len(found) >= 3 and all(first == second for first, second in found)
    assert time.process_time() - started < 2, "all primes below it are half a minute and more"


def test_parts_keep_one_size_then_all_but_one():
    space = ShapeSpace(((64, 32, 16), (64, 32, 16)), elements)
    kept = [{s.size for s in space.symbols} - {s.size for s in part.symbols} for part in space.held()]
    assert kept == [{64}, {32}, {16}, {32, 16}, {64, 16}, {64, 32}]
    for part, sizes in zip(space.held(), kept, strict=True):
        found = part.derived()
        assert len(found) >= 2 and all(sizes <= set(shape) for shapes in found for shape in shapes)
        assert all(shapes[0] == shapes[1] for shapes in found), "equal sizes stay equal"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 5000), min_size=1, max_size=4), min_size=1, max_size=3),
    st.integers(16, 100_000),
)
def test_shrink_obeys_its_limit_and_keeps_ranks(shapes, limit):
    given_shapes = tuple(tuple(shape) for shape in shapes)
    space = ShapeSpace(given_shapes, elements)
    got = space.shrink(limit)
    assert got is None or (elements(got) <= limit and [len(s) for s in got] == [len(s) for s in given_shapes])
    assert space.shrink(limit) == got
    for derived in space.derived():
        assert derived != given_shapes


def test_names_tell_shapes_apart():
    long = tuple((n, n + 1, n + 2, n + 3) for n in range(20))
    other = (*long[:-1], (9, 9, 9, 9))
    assert len(shape_name(long)) <= 60 and shape_name(long) != shape_name(other)
    assert shape_name(((3, 4), ())) == "3x4,scalar"


def test_parts_leave_one_symbol_alone_or_change_one_alone():
    space = ShapeSpace(((64, 32, 16),), elements)
    sizes = [[symbol.size for symbol in part.symbols] for part in space.parts()]
    assert sizes == [[64, 32, 16], [32, 16], [64, 16], [64, 32], [64], [32], [16]]
    assert list(space.parts())[1].shrink(4096)[0][0] == 64


# ---------------------------------------------------------------- real tasks


@pytest.mark.parametrize("name", ["nll_from_logits", "label_smoothing_loss"])
def test_where_indices_bound_a_size_the_others_vary(zygote, name):
    from hipwright.task import open_task

    with open_task(Path(__file__).parents[2] / "examples" / f"{name}.py", zygote) as handle:
        derived = [w for w in handle.task.workloads if w.origin == "derived"]
        classes = handle.task.workloads[0].specs[0].shape[1]
        assert len({w.specs[0].shape[0] for w in derived}) >= 2
        assert all(w.specs[0].shape[1] == classes for w in derived)
        small = handle.derive(4096)
        assert small is not None and small.specs[0].shape[0] > 1
        handle.reference(handle.inputs(small.name, 3), handle.init_state(0))


def test_a_shape_that_few_indices_fit_by_luck_is_not_derived(zygote, tmp_path):
    from hipwright.task import open_task

    (tmp_path / "picks.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, picks):\n"
        "        return torch.tanh(x.index_select(1, picks))\n\n\ndef get_inputs():\n"
        "    return [torch.randn(24, 96), torch.randint(0, 96, (3,))]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    with open_task(tmp_path / "picks.py", zygote) as handle:
        derived = [w for w in handle.task.workloads if w.origin == "derived"]
        assert derived
        for workload in derived:
            for seed in range(40):
                handle.reference(handle.inputs(workload.name, seed), handle.init_state(0))


def test_derived_workloads_are_valid_deterministic_and_varied(load, zygote):
    from task_files import FILES

    from hipwright.task import open_task

    handle = load("conv")
    derived = [w for w in handle.task.workloads if w.origin == "derived"]
    assert 2 <= len(derived) <= 4
    shapes = [w.specs[0].shape for w in derived]
    assert all(shape[1] == 16 for shape in shapes), "channels belong to the weights"
    assert any(shape[0] == 1 for shape in shapes) and any(shape[2] % 2 for shape in shapes)
    with open_task(FILES / "conv.py", zygote) as again:
        assert again.task == handle.task and again.task.key == handle.task.key


@pytest.mark.parametrize("name", ["conv", "embedding", "strides", "nested", "linear_gelu", "buffers"])
def test_every_workload_runs(load, name):
    handle = load(name)
    for workload in handle.task.workloads:
        inputs = handle.inputs(workload.name, 1)
        assert tuple(t.spec for t in tensor_leaves(inputs)) == workload.specs
        outputs, _, _ = handle.reference(inputs, handle.init_state(1), dtype="native")
        assert tensor_leaves(outputs)


def test_groups_are_honoured(load):
    handle = load("groups")
    by_name = {w.name: w for w in handle.task.workloads}
    assert by_name["given"].specs[0].shape == (9, 5)
    assert by_name["group1"].specs[0].shape == (2, 3, 5) and by_name["group1"].origin == "group"
    assert handle.inputs("group1", 0)[1] == 2
    with pytest.raises(KeyError):
        handle.inputs("group7", 0)


def test_derive_keeps_ranks_patterns_and_odd_tails(load):
    handle = load("conv")
    workload = handle.derive(4096)
    (spec,) = workload.specs
    n, c, h, w = spec.shape
    assert c == 16 and n * c * h * w <= 4096 and (n * h * w) % 2 == 1
    assert spec.stride == (h * w * c, 1, w * c, c), "still channels-last"
    assert handle.inputs(workload.name, 0)[0].shape == spec.shape
    assert handle.derive(4096) == workload


def test_derived_values_come_from_the_files_own(load):
    handle = load("embedding")
    workload = next(w for w in handle.task.workloads if w.origin == "derived" and w.specs[0].shape[0] > 12)
    ids, mask = handle.inputs(workload.name, 0)
    own = handle.inputs("given", 0)
    assert set(np.unique(ids.bits())) <= set(np.unique(own[0].bits()))
    assert mask.dtype == "bool" and ids.shape == workload.specs[0].shape
    grown = next(w for w in load("linear_gelu").task.workloads if w.origin == "derived" and w.specs[0].shape[0] > 16)
    rows = load("linear_gelu").inputs(grown.name, 0)[0].to_f64()
    assert len(np.unique(rows, axis=0)) == len(rows), "rows beyond the original are drawn afresh"
    assert rows.min() >= 0 and rows.max() <= 1, "from the file's own distribution"


def test_gigabytes_are_not_drawn_to_be_cut(load):
    handle = load("large")
    workload = handle.derive(4096)
    start = time.perf_counter()
    x, y, index = handle.inputs(workload.name, 0)
    cut = time.perf_counter()
    handle.inputs("given", 0)
    assert cut - start < (time.perf_counter() - cut) / 3
    assert x.shape[0] == y.shape[0] == index.shape[0] and y.shape[1] == 1
    values = x.to_f64()
    assert 1.4 < values.mean() < 1.6 and values.min() >= 0 and values.max() <= 3, "the file's own distribution"
    assert index.to_f64().min() >= 0 and index.to_f64().max() < 7


def test_indices_into_a_large_table_follow_its_size(load):
    handle = load("large_table")
    workload = handle.derive(4096)
    assert workload is not None and workload.specs[0].shape[0] < 4096, "the table shrinks"
    for seed in range(3):
        table, picked, low = (one.to_f64() for one in handle.inputs(workload.name, seed))
        assert picked.min() >= 0 and picked.max() < table.shape[0] and len(set(picked.ravel())) > 2
        assert low.min() >= 5 and low.max() < 9, "another bound is left as it is"


def test_patterns_of_strides_survive_a_change_of_shape(load):
    handle = load("strides")
    workload = handle.derive(700)
    t, e, s, w = handle.inputs(workload.name, 0)
    assert t.stride[0] == 1 and t.stride[1] == t.shape[0], "transposed"
    assert e.stride[1] == 0, "expanded"
    assert s.stride[1] == 2 and s.offset == 43, "every second column of a wider tensor, at an offset"
    assert w.stride == (3, 1) and w.shape[1] > 3, "windows overlap"


WHOLE = st.integers(0, 30)


@given(st.lists(WHOLE, min_size=2, max_size=12), st.lists(WHOLE, min_size=12), st.integers(1, 30))
def test_offsets_stay_in_order(first, second, size):
    offsets, other = torch.tensor(sorted(first)), torch.tensor(sorted(second)[: len(first)])
    found = resize(offsets, other, (size,))
    assert (found.diff() >= 0).all() and found.shape == (size,) and set(found.tolist()) <= set(range(31))


@pytest.mark.parametrize("values", [[3, 1, 2], [0, 2, 1, 5]])
def test_other_lists_are_tiled(values):
    tensor, in_order = torch.tensor(values), torch.tensor(sorted(values))
    assert resize(tensor, tensor, (2 * len(values),)).tolist() == values * 2
    assert resize(in_order, tensor, (2 * len(values),)).tolist() == sorted(values) * 2, "in order by chance"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [(), (3,)])
@pytest.mark.parametrize("size", [2, 5, 9, 17, 40])
def test_edges_of_bins_stay_in_order(dtype, rows, size):
    edges, other = ((torch.rand(*rows, 9) * 64).sort().values.to(dtype) for _ in range(2))
    found = resize(edges, other, (*rows, size)).float()
    assert (found.diff(dim=-1) >= 0).all() and found.shape == (*rows, size)
    assert set(found.ravel().tolist()) <= set(torch.cat([edges, other]).float().ravel().tolist())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_floats_keep_their_places(dtype):
    rising, falling = torch.linspace(-3, 3, 7, dtype=dtype), torch.linspace(3, -3, 7, dtype=dtype)
    assert resize(rising, falling, (9,)).tolist() == [*rising.tolist(), 3.0, 2.0], "in order by chance"
    assert resize(falling, falling, (9,)).tolist() == [*falling.tolist(), 3.0, 2.0]
    zeros = torch.zeros(7, dtype=dtype)
    assert not rises(zeros) and not rises(torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0])) and not rises(torch.zeros(3, 0))


SEGMENTS = st.lists(st.integers(0, 9), min_size=2, max_size=6)


@given(st.lists(SEGMENTS, min_size=1, max_size=3), st.integers(2, 9), st.integers(2, 40), st.integers(1, 4))
def test_lengths_go_on_adding_up(rows, count, size, many):
    """Otherwise torch.segment_reduce refuses the size, and with `unsafe` reads outside."""
    width = min(map(len, rows))
    lengths = torch.tensor([row[:width] for row in rows])
    total = int(lengths.sum(-1).max()) + 50
    lengths[:, -1] += total - lengths.sum(-1)
    data = torch.randn(len(rows), total)
    shapes = ((many, size), (many, count))
    found = resize_all([data, lengths], [data, lengths.roll(1, 0)], shapes)[1]
    assert found.shape == (many, count) and (found >= 0).all() and (found.sum(-1) == size).all()
    assert (found > 0).all() or (lengths == 0).any() or size < count
    assert torch.equal(
        resize_all([data, lengths], [data, lengths], ((len(rows), total), (len(rows), width)))[1], lengths
    )


@given(st.lists(st.integers(0, 30), min_size=3, max_size=9), st.integers(3, 12), st.integers(2, 70))
def test_offsets_go_on_ending_where_the_rows_end(inner, count, size):
    offsets, other = (torch.tensor([0, *sorted(row), 61]) for row in (inner, [31 - n for n in inner]))
    found = resize_all([torch.randn(61, 3), offsets], [torch.randn(61, 3), other], ((size, 3), (count,)))[1]
    assert found.shape == (count,) and found[0] == 0 and found[-1] == size and (found.diff() >= 0).all()


def test_other_whole_numbers_divide_nothing():
    labels = torch.tensor([1, 2, 0, 3])
    given = [torch.randn(6, 5), labels, torch.tensor([0, 2, 4, 7]), torch.tensor([[6.0, 0.0]])]
    other = [torch.randn(6, 5), torch.tensor([1, 0, 2, 0]), *given[2:]]
    found = resize_all(given, other, ((3, 5), (4,), (4,), (1, 2)))
    assert [one.tolist() for one in found[1:]] == [one.tolist() for one in given[1:]]
    places, mask = torch.tensor([2, 0, 3, 1]), torch.tensor([[0, 1, 1], [1, 0, 1]])
    given = [torch.randn(6, 2), places, mask]
    found = resize_all(given, [given[0], places.roll(1), mask], ((5, 3), (4,), (2, 3)))
    assert torch.equal(found[1], places) and torch.equal(found[2], mask), "sums that are no chance"
