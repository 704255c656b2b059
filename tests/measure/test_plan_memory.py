"""What a plan allocates: kernels' buffers and results of library calls, neither views nor updates."""

from __future__ import annotations

from typing import Any

from hipwright.measure.memory import allocated_bytes, much_written, plan_memory


def spec(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


def call(op: str, *outs: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "in": [spec(8, 8)], "out": list(outs)}


OPS = [
    call("aten.empty.memory_format", spec(1000, 500)),  # 2 MB
    call("aten.empty.memory_format", spec(100, dtype="bfloat16")),
    call("aten.mm.default", spec(10, 10)),
    call("aten.view.default", spec(500_000)),
    call("aten.add_.Tensor", spec(10, 10)),
    call("aten.index_copy_.default", spec(10, 10)),
    call("aten.mm.out", spec(10, 10)),
    call("aten.split.Tensor", spec(5, 10), spec(5, 10)),
]


def test_allocations_and_results_count_once() -> None:
    assert allocated_bytes(OPS) == 2_000_000 + 200 + 400
    assert allocated_bytes([]) == 0


def test_a_plan_that_writes_much_says_so() -> None:
    found = plan_memory(OPS, [spec(10, 10)], 1_000_000.0)
    assert found == {"workspace_bytes": 2_000_200, "memory_mb": 3.0, "written": 2.001}
    assert much_written(found) == "writes 2.0 times its inputs and outputs"
    assert much_written(plan_memory(OPS, [spec(10, 10)], 2_000_000.0)) == ""


def test_what_is_freed_is_written_and_no_workspace() -> None:
    found = plan_memory(OPS, [spec(10, 10)], 1_000_000.0, live=500_400)
    assert found == {"workspace_bytes": 500_000, "memory_mb": 1.5, "written": 2.001}


def test_outputs_in_place_leave_no_negative_workspace() -> None:
    found = plan_memory([call("aten.copy_.default", spec(10))], [spec(10)], 80.0)
    assert found == {"workspace_bytes": 0, "memory_mb": 0.0, "written": 0.0} and much_written(found) == ""
    assert plan_memory([], [], 0.0)["written"] == 0.0
