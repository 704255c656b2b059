"""Memory that a plan allocates in one call, from its trace: its workspace, and whether it writes much.

Coverage says who computes, not what is written on the way: a program whose kernels do everything may still write all
distances, or weights expanded. A trace names every allocation at the traced shapes; each is written once at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hipwright.measure.cost import FREE, OpCall, base_name, tensor_bytes

ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
MUCH = 1.5
"""The plan writes much where it writes more than so many times its inputs, state and outputs."""
MEGABYTE = 1_000_000


def allocated_bytes(calls: Iterable[OpCall]) -> int:
    """Bytes of the tensors that operators make: kernels' buffers and results of library calls; no views, no updates."""
    return sum(tensor_bytes(out) for call in calls if _allocates(str(call["op"])) for out in call["out"])


def _allocates(op: str) -> bool:
    name = base_name(op)
    updates = name.endswith("_") or op.endswith(("out", "out_"))
    return name in ALLOCATIONS or (name not in FREE and not updates)


def plan_memory(
    calls: Iterable[OpCall], outputs: Iterable[Mapping[str, Any]], floor: float, live: int | None = None
) -> dict[str, Any]:
    """{"workspace_bytes", "memory_mb", "written"} of a plan's traced operators.

    outputs: the specs of what it returns; floor: bytes of inputs, state and outputs, once each. live: the most bytes
    that what the plan makes holds at once; where it is not known, nothing counts as freed. workspace_bytes: of these,
    what is beside the outputs; a library call's own scratch is not seen. memory_mb: floor and workspace in 10^6 bytes.
    written: all that is allocated, as a multiple of the floor.
    """
    made = allocated_bytes(calls)
    workspace = max(0, (made if live is None else live) - sum(tensor_bytes(out) for out in outputs))
    return {
        "workspace_bytes": workspace,
        "memory_mb": round((floor + workspace) / MEGABYTE, 3),
        "written": round(made / floor, 3) if floor else 0.0,
    }


def much_written(memory: Mapping[str, Any]) -> str:
    """A sentence where a plan writes more than MUCH times its inputs and outputs, else ""."""
    written = memory.get("written", 0.0)
    return f"writes {written:.1f} times its inputs and outputs" if written > MUCH else ""


__all__ = ["MUCH", "allocated_bytes", "much_written", "plan_memory"]
