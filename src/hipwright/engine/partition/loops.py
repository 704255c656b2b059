"""Loops of the plan: the tensors that are handed to a body, and who reads them there."""

from __future__ import annotations

from collections.abc import Callable

from hipwright.capture.graph import Node, plain
from hipwright.engine.ir.expr import walk
from hipwright.engine.lower.values import LoweredItem, Tensor
from hipwright.engine.partition.state import LoopCall, Lowered, LoweringState
from hipwright.engine.rewrite.loops.records import LoopBody
from hipwright.engine.templates.offers import probe


def loop_call(
    state: LoweringState, node: Node, body: LoopBody, inner: Lowered, ensure: Callable[[str], str]
) -> LoopCall:
    """The call of a loop, with everything that its body reads in memory.

    ensure: gives the plan's tensor of a value that library calls read. A value that kernels of the body read is stored
    row by row, if it is not a tensor already.
    """
    call = LoopCall(node, "", body=body, inner=inner)
    by_kernels, by_calls = _handed(body, kernel_reads(inner)), _handed(body, library_reads(inner))
    for name, argument in zip(body.given, node.args[0], strict=True):
        source = argument["node"]
        value = state.values[source]
        if name not in by_kernels and name not in by_calls:
            continue
        if name not in by_kernels:
            call.refs[name] = ensure(source)
            continue
        if not (isinstance(value, Tensor) and value.buffer):
            value = state.values[source] = state.c.realise(value, plain(source), between=False)
        call.refs[name] = value.buffer
        call.read_by_kernels.add(value.buffer)
    state.out.calls.append(call)
    return call


def _handed(body: LoopBody, read: set[str]) -> set[str]:
    """With the carried inputs that become others which are read, some steps later."""
    found = set(read)
    for name, value in body.carried.items():  # the oldest first
        found |= {value} if name in found and value in body.carried else set()
    return found


def kernel_reads(lowered: Lowered) -> set[str]:
    """The tensors that kernels of a graph read, those of its loops included."""
    found = {name for item in lowered.items for name in _reads(lowered, item)}
    return found | {n for call in lowered.calls if isinstance(call, LoopCall) for n in call.read_by_kernels}


def library_reads(lowered: Lowered) -> set[str]:
    """The tensors that library calls, views and loops of a graph read."""
    return {n for call in lowered.calls for n in call.refs.values()} | {v.source for v in lowered.views}


def _reads(lowered: Lowered, item: LoweredItem) -> set[str]:
    if item.kind == "call":
        return set(item.placed.reads)
    c = lowered.context
    element = probe(c, c.tensor(item.dtype, item.space, item.body))
    return {e.attr[0] for e in walk([element]) if e.op == "load"}
