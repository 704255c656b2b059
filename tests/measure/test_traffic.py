"""Bytes and operations that a task needs, counted from the reference's operators."""

from __future__ import annotations

from typing import Any

from hipwright.measure.traffic import count_traffic


def spec(dtype: str, *shape: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def call(op: str, ins: list[dict[str, Any]], *outs: dict[str, Any]) -> dict[str, Any]:
    return {"op": f"aten.{op}.default", "in": ins, "out": list(outs)}


def test_a_chain_reads_its_inputs_and_writes_its_outputs_once() -> None:
    x = spec("float32", 1000)
    found = count_traffic([call("mul", [x], x), call("exp", [x], x), call("view", [x], x)], [x], [x])
    assert (found.bytes, found.operations) == (8000, 2000.0)
    assert found.memory_bound and found.intensity == 0.25


def test_a_gather_reads_what_it_picks_and_its_index() -> None:
    table, index, out = spec("float32", 100_000, 64), spec("int64", 10), spec("float32", 10, 64)
    found = count_traffic([call("embedding", [table, index], out)], [table, index], [out])
    assert (found.bytes, found.operations) == (2 * 10 * 64 * 4 + 80, 0.0)
    small = spec("float32", 4, 64)
    again = count_traffic([call("embedding", [small, index], out)], [small, index], [out])
    assert again.bytes == 4 * 64 * 4 + 10 * 64 * 4 + 80  # never more than there is
    both = count_traffic([call("embedding", [table, index], out), call("sum", [table], out)], [table, index], [out])
    assert both.bytes > 100_000 * 64 * 4


def test_products_are_counted_as_such_and_casts_as_nothing() -> None:
    a, b, c = spec("bfloat16", 512, 256), spec("bfloat16", 256, 128), spec("bfloat16", 512, 128)
    found = count_traffic([call("_to_copy", [a], a), call("mm", [a, b], c)], [a, b], [c])
    assert found.operations == 2.0 * 512 * 256 * 128 and not found.memory_bound
    vector = spec("bfloat16", 256)
    gemv = count_traffic([call("mv", [a, vector], spec("bfloat16", 512))], [a, vector], [spec("bfloat16", 512)])
    assert gemv.memory_bound and gemv.operations == 2.0 * 512 * 256
