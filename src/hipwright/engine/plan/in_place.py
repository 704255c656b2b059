"""Pointwise kernels that overwrite a tensor of which they are the last reader.

A library product and the activation behind it write two tensors, of which the first is dead when the second is there.
Out of place both leave the cache for memory; in place one does, and there is a tensor less to hold. torch.compile does
the same (`inplace_buffers` of Inductor).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hipwright.capture.graph import short
from hipwright.engine.fuse.groups import FULL, Group, GroupMember
from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import Ix
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.values import LibraryCall
from hipwright.engine.partition.state import Lowered
from hipwright.engine.plan.steps import PlanStep

OWN_MEMORY = {
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "matmul",
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "scaled_dot_product_attention",
}
"""Library operators whose result is never a view of an argument."""


@dataclass(frozen=True)
class ReusableTensor:
    """Shape and dtype of a tensor that the plan made."""

    shape: tuple[Ix, ...]
    dtype: str


class ReusableTensors:
    """The tensors that a step may overwrite: those that the plan made and that no later step reads."""

    def __init__(self, lowered: Lowered, steps: Sequence[PlanStep]) -> None:
        """steps: of the plan, in their order."""
        c = lowered.context
        self._made = {i.name: ReusableTensor(tuple(i.shape), i.dtype) for i in lowered.items if not i.target}
        for call in (s.what for s in steps if isinstance(s.what, LibraryCall)):
            self._made |= {
                name: _reusable(c, lowered, name) for name in call.outputs if short(call.node.op) in OWN_MEMORY
            }
        kept = {*lowered.outputs.values(), *lowered.packed, *(n for v in lowered.views for n in (v.name, v.source))}
        self._last = {name: step.number for step in steps for name in step.reads if name not in kept}

    def of(self, step: PlanStep) -> dict[str, ReusableTensor]:
        """Tensors that this step is the last to read."""
        return {n: self._made[n] for n in sorted(step.reads) if n in self._made and self._last.get(n) == step.number}


def _reusable(c: LoweringContext, lowered: Lowered, name: str) -> ReusableTensor:
    meta = lowered.metas[name]
    return ReusableTensor(tuple(c.shape(meta)), meta.dtype)


def overwritten(group: Group, stored: Sequence[GroupMember], reusable: Mapping[str, ReusableTensor]) -> dict[str, str]:
    """{item: the tensor that it replaces}, for items of a pointwise group whose threads read of the tensor nothing but
    the element that they write.

    stored: the members that reach memory, in the order of their stores: an element may be stored, and lost, before the
    next member's value is worked out. So who replaces a tensor comes behind, or is, the last who reads it.
    """
    found: dict[str, str] = {}
    places: dict[str, set[str]] = {}
    last: dict[str, int] = {}
    for number, member in enumerate(stored):
        for e in walk([member.value]):
            if e.op == "load":
                places.setdefault(e.attr[0], set()).add(e.attr[1].key)
                last[e.attr[0]] = number
    for number, member in enumerate(stored):
        item, at = member.item, {member.position.key}
        if member.role != FULL or item.target:
            continue
        for name, tensor in reusable.items():
            free = name not in found.values() and places.get(name) == at and last[name] <= number
            if free and tensor == ReusableTensor(tuple(item.shape), item.dtype):
                found[item.name] = name
                break
    return found
