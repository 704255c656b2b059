"""The floor is a lower bound: it allows for every way in which an honest program can do less."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipwright.evaluation.gpu.context import last_level_bytes
from hipwright.measure.roofline import MOST_SLOTS, OVER_CACHE, SHORTCUTS, SPLIT_PRODUCTS, count_work, floor_of, rotation


@dataclass
class Rates:
    bytes_per_s: float = 1e12
    flops: dict[str, float] = field(default_factory=lambda: {"float32": 1e13, "float16": 1e14})


def spec(*shape: int, dtype: str = "float32", stride: tuple[int, ...] = ()) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "stride": stride}


def op(name: str, ins: list[Any], outs: list[Any]) -> dict[str, Any]:
    return {"op": f"aten.{name}.default", "in": ins, "out": outs}


BIG = spec(1 << 20, 256)  # 1 GiB
N = 4 << 28


def test_an_elementwise_task_moves_its_inputs_and_outputs() -> None:
    work = count_work([op("relu", [BIG], [BIG])], [BIG], [], [BIG])
    floor = floor_of(work, Rates(), cache_bytes=0)
    assert floor.bytes == floor.lowest_bytes == 2 * N and floor.bound == "memory"
    assert floor.roofline_ms == pytest.approx(2 * N / 1e9)
    assert floor.lowest_ms == pytest.approx(0.85 * 2 * N / 1e9)


def test_an_honest_kernel_out_of_the_infinity_cache_is_possible() -> None:
    """An MI300X: 42 MB read and written again in 8.4 us. By the 4 MB of one die's L2, 7.1 TB/s would be impossible."""
    fast = Rates(bytes_per_s=4e12)
    tensor = spec(5_250_000)
    work = count_work([op("relu", [tensor], [tensor])], [tensor], [], [tensor])
    assert floor_of(work, fast, cache_bytes=4 << 20).lowest_ms > 8.0e-3
    assert floor_of(work, fast, cache_bytes=last_level_bytes("gfx942")).lowest_ms == 0.0
    slots = rotation(42_000_000, last_level_bytes("gfx942"), 1 << 40)
    assert slots * 42_000_000 >= 2 * (256 << 20) and slots * 42_000_000 >= 512 << 20


def test_what_the_cache_may_keep_is_not_counted() -> None:
    small = spec(1000, 1000)
    work = count_work([op("relu", [small], [small])], [small], [], [small])
    assert floor_of(work, Rates(), cache_bytes=50_000_000).lowest_ms == 0.0
    rotated = floor_of(work, Rates(), cache_bytes=50_000_000, slots=38)
    assert rotated.lowest_bytes == int(4_000_000 - 50_000_000 / 38)
    assert floor_of(work, Rates(), cache_bytes=1_000_000).lowest_bytes == 7_000_000


@pytest.mark.parametrize("name", ["embedding", "gather", "index_select", "tril"])
def test_an_operator_that_needs_a_part_makes_no_input_count(name: str) -> None:
    rows = spec(8, 256)
    work = count_work([op(name, [BIG, spec(8, dtype="int64")], [rows])], [BIG], [], [rows])
    assert work.need_inputs == 0 and work.inputs == (N if name == "tril" else 8 * 256 * 4)
    assert floor_of(work, Rates(), cache_bytes=0).lowest_bytes == 8 * 256 * 4


@pytest.mark.parametrize("name", ["embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"])
def test_a_bag_of_a_large_table_needs_the_rows_that_it_picks(name: str) -> None:
    table, picked, rows = spec(1_000_000, 128), spec(160, dtype="int64"), spec(16, 128)
    work = count_work([op(name, [table, picked], [rows])], [table], [], [rows])
    assert work.need_inputs == 0 and work.inputs == 160 * 128 * 4
    assert floor_of(work, Rates(), cache_bytes=0).lowest_bytes == 16 * 128 * 4


def test_a_view_alone_reads_nothing_and_zeros_need_not_be_read() -> None:
    rows = spec(8, 256)
    sliced = count_work([op("slice", [BIG], [rows]), op("relu", [rows], [rows])], [BIG], [], [rows])
    assert sliced.need_inputs == 0
    half = count_work([op("relu", [BIG], [BIG])], [BIG], [], [BIG], {0: 0.5})
    assert half.need_inputs == N // 2 and half.inputs == N


def test_an_output_that_is_a_view_need_not_be_written() -> None:
    turned, small = spec(256, 1 << 10, stride=(1, 256)), spec(8)
    calls = [op("t", [BIG], [turned]), op("relu", [small], [small])]
    assert count_work(calls, [BIG, small], [], [turned, small]).need_outputs == 32


def product(m: int, k: int, n: int, out: dict[str, Any], *more: dict[str, Any], own: bool = True) -> Any:
    left, right, result = spec(m, k), spec(k, n), spec(m, n)
    first = op("mm", [left, right], [result])
    return count_work([first, *more], [left] if own else [spec(3)], [right], [out])


@pytest.mark.parametrize("flops, rate", [({"float32": 1e13}, 1e13), ({"float32": 1e13, "float16": 2e13}, 1e13)])
@pytest.mark.parametrize("more", [{}, {"float64": 5e12}])
def test_products_are_bound_by_operations(flops: dict[str, float], rate: float, more: dict[str, float]) -> None:
    bound_by(Rates(flops={**flops, **more}), rate)


def test_a_float32_product_may_be_three_of_half_parts() -> None:
    bound_by(Rates(flops={"float32": 1e13, "float16": 1e14}), 1e14 / SPLIT_PRODUCTS)


def bound_by(rates: Rates, rate: float) -> None:
    work = product(4096, 4096, 4096, spec(4096, 4096))
    floor = floor_of(work, rates, cache_bytes=0)
    assert floor.bound == "compute" and floor.roofline_ms == pytest.approx(2e3 * 4096**3 / rate)
    assert floor.lowest_ms == pytest.approx(floor.roofline_ms / SHORTCUTS)


def test_products_that_rewriting_avoids_do_not_bind() -> None:
    reduced = product(4096, 4096, 4096, spec(4096), op("sum", [spec(4096, 4096)], [spec(4096)]))
    assert not reduced.sure_flops and reduced.flops, "a sum after a product may be done before it"
    inner = product(4096, 4096, 4096, spec(4096, 4096), own=False)  # one leaf of that size, two operands
    assert not inner.sure_flops, "a product of something computed may have low rank"
    bias, left, computed, result = spec(512), spec(64, 256), spec(256, 512), spec(64, 512)
    biased = count_work([op("addmm", [bias, left, computed], [result])], [left], [bias], [result])
    assert not biased.sure_flops and biased.flops, "a bias is no operand"


def test_several_products_are_bound_by_the_largest_only() -> None:
    left, right, result = spec(512, 256), spec(256, 512), spec(512, 512)
    calls = [op("mm", [left, right], [result])] * 3
    work = count_work(calls, [left], [right], [result])
    assert work.flops["float32"] == 3 * work.sure_flops["float32"]


def test_an_unknown_dtype_takes_the_fastest_rate() -> None:
    left, right, result = (spec(*s, dtype="float8_e4m3fn") for s in ((512, 256), (256, 512), (512, 512)))
    work = count_work([op("mm", [left, right], [result])], [left], [right], [result])
    fast = floor_of(work, Rates(), cache_bytes=10**9)
    assert fast.lowest_ms == pytest.approx(1e3 * 2 * 512 * 256 * 512 / 1e14 / SHORTCUTS)


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.integers(1, 64),
)
def test_the_lowest_is_never_above_the_roofline(shapes: list[tuple[int, int]], cache: int, slots: int) -> None:
    ins = [spec(*shape) for shape in shapes]
    work = count_work([op("cat", ins, [ins[0]])], ins, [], [ins[0]])
    floor = floor_of(work, Rates(), cache_bytes=cache, slots=slots)
    assert 0 <= floor.lowest_ms <= floor.roofline_ms
    assert floor.lowest_bytes <= sum(4 * prod(s) for s in shapes) + 4 * prod(shapes[0])


@given(st.integers(0, 1 << 34), st.integers(0, 1 << 28), st.integers(0, 1 << 36))
def test_rotation_covers_the_cache_or_says_what_stopped_it(each: int, cache: int, room: int) -> None:
    slots = rotation(each, cache, room)
    assert 1 <= slots <= MOST_SLOTS
    assert slots == 1 or slots * max(each, 1) <= room
    if 1 < slots < MOST_SLOTS and (slots + 1) * max(each, 1) <= room:
        assert (slots - 1) * max(each, 1) >= OVER_CACHE * cache
