"""Which bytes a task that writes its inputs must move: those written at some places, and those of a whole."""

from __future__ import annotations

from typing import Any

import pytest

from hipwright.measure.roofline import count_work
from hipwright.measure.traffic import count_traffic
from hipwright.records import TensorSpec
from hipwright.task.placed import whole


def spec(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "stride": []}


CACHE, KEYS, SLOTS = spec(4096, 64), spec(16, 64), spec(16, dtype="int64")


@pytest.mark.parametrize("op", ["aten.index_copy_.default", "aten.index_put_.default", "aten.scatter_.src"])
def test_a_cache_counts_by_what_is_written(op: str) -> None:
    calls = [{"op": op, "in": [CACHE, SLOTS, KEYS], "out": [CACHE]}]
    moved = 16 * 64 * 4
    assert count_traffic(calls, [CACHE, KEYS, SLOTS], []).bytes == moved + moved + 16 * 8
    work = count_work(calls, [CACHE, KEYS, SLOTS], [], [])
    assert work.inputs + work.outputs == 2 * moved + 16 * 8 and work.need_inputs <= moved + 16 * 8
    assert not whole(TensorSpec(dtype="float32", shape=(4096, 64)), calls)


def test_a_tensor_that_is_updated_as_a_whole_is_an_output() -> None:
    calls = [{"op": "aten.mul_.Tensor", "in": [CACHE], "out": [CACHE]}]
    assert whole(TensorSpec(dtype="float32", shape=(4096, 64)), calls)
    assert not whole(TensorSpec(dtype="float16", shape=(4096, 64)), calls)
    assert not whole(TensorSpec(dtype="float32", shape=(4096, 64)), [{**calls[0], "op": "aten.mul.Tensor"}])
