"""Operators that a package adds to torch: what they are in torch's own, or why no graph of ours holds them."""

from __future__ import annotations

from typing import Any

import torch

from hipwright.capture.value_dependent import at_node
from hipwright.errors import TaskError

SAME_AS = {
    # transformers calls its own where it is compiled; torch's has a CPU form since 2.9
    "transformers.grouped_mm_fallback.default": "aten._grouped_mm.default",
}
"""Operators of packages by those of torch that compute the same of the same arguments, in the same order."""

HINT = "write the forward with torch's own operators there: a program may call no others"


def operator_name(node: Any) -> str:
    """The operator of a node of an exported graph, e.g. "aten.add.Tensor".

    Raises TaskError for one that torch itself does not have, and for one that holds graphs of its own (torch.cond,
    torch.while_loop, flex_attention).
    """
    target = node.target
    if target.__name__ == "getitem":
        return "getitem"
    name = str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise TaskError(f"cannot capture: {_place(node)}{name} holds a graph of its own", hint=HINT)
    if isinstance(target, torch._ops.OpOverload) and target.namespace not in ("aten", "prims"):
        if name not in SAME_AS:
            raise TaskError(f"cannot capture: {_place(node)}the operator {name} is not torch's own", hint=HINT)
        return SAME_AS[name]
    return name


def _place(node: Any) -> str:
    place = at_node(node)
    return f"{place}: " if place else ""
