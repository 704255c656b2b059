"""Steps of a tensor: which values of a graph are places along one dimension of another, and which of those follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.capture.graph import Graph, Meta, Node, short
from hipwright.engine.rewrite.pinned_sizes import metas

WHOLE = 1 << 62
"""An end of a slice from which on it is the whole dimension."""


@dataclass(frozen=True)
class SequenceStep:
    """x[..., number, ...]: one place along a dimension of a tensor."""

    root: str
    dim: int
    number: int


class Steps:
    """Which values are steps of another."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = {n.name: n for n in graph.nodes}
        self.known = metas(graph)
        self.place = {i.name: -1 for i in graph.inputs} | {n.name: k for k, n in enumerate(graph.nodes)}

    def of(self, argument: Any) -> SequenceStep | None:
        """The step that an argument is."""
        node = self.nodes.get(argument["node"]) if isinstance(argument, dict) and "node" in argument else None
        if node is None:
            return None
        source, number = node, None
        if node.op == "getitem":
            source, number = self.nodes.get(node.args[0]["node"], node), node.args[1]
        kind = short(source.op)
        if kind != ("unbind" if node.op == "getitem" else "select"):
            return None
        root = self._whole(source.args[0]["node"])
        dim = source.args[1] if len(source.args) > 1 else 0
        number = source.args[2] if number is None else number
        meta = self.known.get(root)
        if meta is None or not isinstance(dim, int) or not isinstance(number, int) or number < 0:
            return None
        return SequenceStep(root, dim % len(meta.shape), number)

    def _whole(self, name: str) -> str:
        """What a slice of everything is a slice of."""
        node = self.nodes.get(name)
        while node is not None and short(node.op) == "slice":
            rest: list[Any] = [*node.args[2:], *(None, None, 1)[max(len(node.args) - 2, 0) :]]
            ends = rest[1] is None or (isinstance(rest[1], int) and rest[1] >= WHOLE)
            if rest[0] not in (None, 0) or not ends or rest[2] != 1:
                break
            name = node.args[0]["node"]
            node = self.nodes.get(name)
        return name

    def run(self, arguments: Sequence[Any], before: int) -> tuple[SequenceStep, ...]:
        """The arguments as consecutive steps of a tensor that is there before node number `before`; or none."""
        steps = [self.of(a) for a in arguments]
        first = steps[0] if steps else None
        if first is None or self.place[first.root] >= before:
            return ()
        wanted = tuple(SequenceStep(first.root, first.dim, first.number + k) for k in range(len(steps)))
        return wanted if list(wanted) == steps else ()

    def part(self, run: Sequence[SequenceStep], name: str) -> tuple[Any, Meta, list[Node]]:
        """(the steps as one argument, its meta, the node that it needs)."""
        meta, (first, count) = self.known[run[0].root], (run[0], len(run))
        assert meta is not None
        if first.number == 0 and meta.shape[first.dim] == count:
            return {"node": first.root}, meta, []
        shape = tuple(count if k == first.dim else s for k, s in enumerate(meta.shape))
        new = Meta(dtype=meta.dtype, shape=shape, stride=meta.stride)
        args = ({"node": first.root}, first.dim, first.number, first.number + count)
        return {"node": name}, new, [Node(name=name, op="aten.slice.Tensor", args=args, outs=(new,))]


def selected(node: Node, source: str, meta: Meta, dim: int, number: int) -> Node:
    """A node's value as one place of another."""
    kept = [k for k in range(len(meta.shape)) if k != dim]
    out = Meta(dtype=meta.dtype, shape=tuple(meta.shape[k] for k in kept), stride=tuple(meta.stride[k] for k in kept))
    return Node(
        name=node.name, op="aten.select.int", args=({"node": source}, dim, number), outs=(out,), module=node.module
    )
