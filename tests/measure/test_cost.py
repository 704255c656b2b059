"""The cost model behind coverage: views are free, products dominate, replacing operators raises coverage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.measure.cost import base_name, coverage, op_bytes, op_flops, op_seconds


def spec(*shape: int, dtype: str = "float32", stride: tuple[int, ...] = ()) -> dict[str, object]:
    return {"dtype": dtype, "shape": list(shape), "stride": list(stride)}


def call(op: str, ins: list[dict[str, object]], *outs: dict[str, object]) -> dict[str, object]:
    return {"op": op, "in": ins, "out": list(outs)}


def test_base_name() -> None:
    assert base_name("aten.addmm.default") == base_name("aten::addmm") == "addmm"


@pytest.mark.parametrize(
    ("item", "flops"),
    [
        (call("aten.mm.default", [spec(4, 8), spec(8, 16)], spec(4, 16)), 2 * 4 * 8 * 16),
        (call("aten.addmm.default", [spec(16), spec(4, 8), spec(8, 16)], spec(4, 16)), 2 * 4 * 8 * 16),
        (call("aten.linear.default", [spec(4, 8), spec(16, 8)], spec(4, 16)), 2 * 4 * 8 * 16),
        (
            call("aten.convolution.default", [spec(2, 3, 8, 8), spec(5, 3, 3, 3)], spec(2, 5, 6, 6)),
            2 * (2 * 5 * 6 * 6) * (3 * 3 * 3),
        ),
        (
            call("aten.convolution.default", [spec(2, 6, 4, 4), spec(6, 5, 3, 3)], spec(2, 5, 6, 6)),
            2 * (2 * 6 * 4 * 4) * (5 * 3 * 3),
        ),
    ],
)
def test_products_count_two_operations_a_multiply_add(item: dict[str, object], flops: int) -> None:
    assert op_flops(item) == flops


def test_views_cost_nothing_and_broadcasts_are_read_once() -> None:
    assert op_seconds(call("aten.transpose.int", [spec(64, 64)], spec(64, 64))) == 0
    full = "aten.full.default"
    assert op_seconds(call(full, [], spec(9))) == 0 < op_seconds(call(full, [], spec(9999)))
    assert op_bytes(call("aten.add.Tensor", [spec(8, 64, stride=(0, 1))], spec(8, 64))) == (64 + 512) * 4


def test_coverage_counts_what_stays_in_the_library() -> None:
    product = call("aten.mm.default", [spec(512, 512), spec(512, 512)], spec(512, 512))
    relu = call("aten.relu.default", [spec(4096, 4096)], spec(4096, 4096))
    assert coverage([], [product, relu]) == 1.0
    assert coverage([product, relu], [product, relu]) == 0.0
    assert coverage([relu], [product, relu]) < coverage([product], [product, relu]) < 1.0
    assert coverage([], []) == 0.0


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 64)), max_size=8), st.integers(0, 8))
def test_coverage_stays_in_range_and_falls_with_more_library_calls(shapes: list[tuple[int, int]], cut: int) -> None:
    calls = [call("aten.relu.default", [spec(*shape)], spec(*shape)) for shape in shapes]
    few, many = coverage(calls[:cut], calls), coverage(calls, calls)
    assert 0.0 <= many <= few <= 1.0
