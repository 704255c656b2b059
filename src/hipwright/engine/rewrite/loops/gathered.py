"""Stacks and concatenations of what all steps of a loop gave, read from the loop's collected values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Meta, Node, Size, short
from hipwright.engine.rewrite.recurrent import row_major

ROW_MAJOR = {"memory_format": "torch.contiguous_format"}
"""Of a clone: memory of its own, whose last dimension lies together."""


@dataclass(frozen=True)
class Collected:
    """The collected values of one node of a loop's step. name, meta: of all of them; steps: {value: its step}."""

    name: str
    meta: Meta
    steps: Mapping[str, int]


def gathered(node: Node, collected: Sequence[Collected]) -> list[Node]:
    """The nodes that stand for a stack or concatenation in which values of all steps follow each other; else itself."""
    parts = list(node.args[0]) if short(node.op) in ("stack", "cat") and node.args else []
    out = node.outs[0] if node.outs else None
    if not parts or out is None:
        return [node]
    stack = short(node.op) == "stack"
    dim = (int(node.args[1]) if len(node.args) > 1 else int(node.kwargs.get("dim", 0))) % len(out.shape)
    made: list[Node] = []
    pieces: list[Any] = []
    at = 0
    while at < len(parts):
        run = next((c for c in collected if _whole_run(c, parts[at : at + len(c.steps)])), None)
        if run is None:
            pieces.append(_unsqueezed(parts[at], node, dim, len(pieces), out, made) if stack else parts[at])
            at += 1
            continue
        backwards = run.steps[parts[at]["node"]] != 0
        pieces.append(_piece(run, node, dim, len(pieces), made, stack=stack, backwards=backwards))
        at += len(run.steps)
    if len(pieces) == len(parts):
        return [node]
    if len(pieces) == 1:
        args: tuple[Any, ...] = (pieces[0],)
        return [*made, msgspec.structs.replace(node, op="aten.clone.default", args=args, kwargs=dict(ROW_MAJOR))]
    return [*made, msgspec.structs.replace(node, op="aten.cat.default", args=(pieces, dim), kwargs={})]


def _whole_run(collected: Collected, parts: Sequence[Any]) -> bool:
    """Whether these are the values of all steps, in order or backwards."""
    if len(parts) != len(collected.steps) or any(not isinstance(p, dict) or "node" not in p for p in parts):
        return False
    numbers = [collected.steps.get(p["node"], -1) for p in parts]
    wanted = list(range(len(parts)))
    return numbers in (wanted, wanted[::-1])


def _unsqueezed(part: Any, node: Node, dim: int, number: int, out: Meta, made: list[Node]) -> Any:
    """A single value among those that are stacked, with the stack's dimension."""
    meta = row_major(out.dtype, (*out.shape[:dim], 1, *out.shape[dim + 1 :]))
    name = f"{node.name}_part_{number}"
    made.append(Node(name=name, op="aten.unsqueeze.default", args=(part, dim), outs=(meta,), module=node.module))
    return {"node": name}


def _piece(
    run: Collected, node: Node, dim: int, number: int, made: list[Node], *, stack: bool, backwards: bool
) -> dict[str, str]:
    """The values of all steps along a dimension of the result."""
    source, meta = run.name, run.meta

    def add(kind: str, op: str, args: tuple[Any, ...], shape: Sequence[Size]) -> str:
        name = f"{node.name}_{kind}_{number}"
        outs = (row_major(meta.dtype, tuple(shape)),)
        made.append(Node(name=name, op=op, args=({"node": source}, *args), outs=outs, module=node.module))
        return name

    shape = list(meta.shape)
    if backwards:
        source = add("backwards", "aten.flip.default", ([0],), shape)
    if dim:
        shape.insert(dim, shape.pop(0))
        source = add("moved", "aten.movedim.int", (0, dim), shape)
    if not stack:
        size = shape.pop(dim + 1)
        count = shape[dim]
        both = isinstance(size, int) and isinstance(count, int)
        shape[dim] = count * size if both else f"({size})*{count}"  # type: ignore[operator]
        sizes = [s if isinstance(s, int) else {"size": s} for s in shape]
        source = add("joined", "aten.reshape.default", (sizes,), shape)
    return {"node": source}
