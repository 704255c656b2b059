"""What a task must move and compute, counted from the reference's operators, and whether it is bound by memory.

bytes: inputs, parameters and buffers once (of an input to gathers only as much as they select, of one that is written
at some places only what is written there), and outputs once, inputs that are written as a whole among them. The copy
that is timed beside the task moves as much. operations: those of products (2 M N K), and one for each element that any
other operator reads; views, casts and moves compute nothing. Both are the task's, whatever a program does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from hipwright.measure.cost import FREE, OpCall, Spec, base_name, is_product, op_flops, tensor_bytes
from hipwright.measure.gathers import GATHERS, picked_bytes
from hipwright.task.placed import PLACED

MEMORY_BOUND = 10.0
"""Operations a byte below which a task is bound by memory: an H200 does 12 fp32 operations a byte it copies."""

_MOVES = frozenset(
    {
        "_to_copy",
        "to",
        "clone",
        "contiguous",
        "copy",
        "cat",
        "stack",
        "concat",
        "flip",
        "roll",
        "repeat",
        "pad",
        "constant_pad_nd",
        "pixel_shuffle",
        "pixel_unshuffle",
        "channel_shuffle",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "new_zeros",
        "new_full",
        "arange",
        "fill",
        "scatter",
        "scalar_tensor",
        "copy_",
    }
    | GATHERS
    | PLACED
)
"""Operators that move elements and compute nothing."""


@dataclass(frozen=True)
class Traffic:
    """Bytes and operations of one call."""

    bytes: int
    operations: float

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / max(self.bytes, 1)

    @property
    def memory_bound(self) -> bool:
        """Fewer than MEMORY_BOUND operations a byte."""
        return self.intensity < MEMORY_BOUND


def count_traffic(calls: Iterable[OpCall], held: Sequence[Spec], outputs: Sequence[Spec]) -> Traffic:
    """calls: operator records as in hipwright.measure.cost; held: inputs, parameters and buffers; outputs: the returned
    tensors.
    """
    ops = [call for call in calls if base_name(call["op"]) not in FREE]
    read = sum(map(picked_bytes(ops), held))
    return Traffic(read + sum(map(tensor_bytes, outputs)), float(sum(map(_operations, ops))))


def _operations(call: OpCall) -> int:
    name = base_name(call["op"])
    if is_product(name) or name in ("mv", "addmv", "dot"):
        return op_flops(call)
    if name in _MOVES:
        return 0
    return int(max((prod(spec["shape"]) for spec in (*call["in"], *call["out"])), default=0))
