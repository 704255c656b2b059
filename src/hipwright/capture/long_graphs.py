"""Long graphs that need no second trace. Runs in the task host; imports torch.

Making mutation functional and decomposing operators traces the graph once more, which takes twice the time of the first
trace. A loop of hundreds of steps is tens of thousands of calls of a few operators; where none of them writes, and none
is taken apart, the first trace is the graph already.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch.export import ExportedProgram

LONG = 2000
"""Calls from which on a graph is long."""
_WHOLE = {
    "chunk",
    "expand_as",
    "flatten",
    "gru_cell",
    "linear",
    "lstm_cell",
    "matmul",
    "reshape",
    "rnn_relu_cell",
    "rnn_tanh_cell",
}
"""Operators that are made of others by definition, and that the engine knows as they are."""


def needs_no_decomposition(exported: ExportedProgram, decomposed: Collection[Any], long: int = LONG) -> bool:
    """Whether a graph of at least `long` calls holds functional operators only that are not taken apart.

    decomposed: the operators that are.
    """
    calls = [n.target for n in exported.graph.nodes if n.op == "call_function"]
    if len(calls) < long or any(n.op == "call_module" and "guards" not in str(n.target) for n in exported.graph.nodes):
        return False
    return all(target is operator.getitem or _stays(target, decomposed) for target in set(calls))


def _stays(target: Any, decomposed: Collection[Any]) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target in decomposed:
        return False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd")
    known = target.name().partition("::")[2].partition(".")[0] in _WHOLE
    return not target._schema.is_mutable and (known or not composite)
