"""Sums of the runs of a compressed matrix (CSR), which a module adds at the rows that it repeats for them.

`index_add(x, 0, repeat_interleave(arange(n), starts.diff()), values)` names a row for every value. The rows are in
order, and `starts` says where each begins: a kernel that reads it needs no index and no atomics
(templates/scatter/runs.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, references, returned
from hipwright.engine.ir.operators import ROW_RUNS
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.rewrite.pinned_sizes import metas

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64")
WHOLE = ("int64", "int32")
END = 1 << 62
"""An end of a slice from which on it is the whole dimension."""


def row_runs(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such sums as the engine's own operator where chosen, what could be chosen).

    The choice is `runs:<sum>`: rows or scattered.
    """
    structure = dict[str, Choice]()
    if choices.get("library"):
        return graph, structure
    finder, nodes = _Finder(graph), list[Node]()
    for node in graph.nodes:
        args = finder.sums(node)
        if args is not None:
            structure[f"runs:{node.name}"] = Choice(options=("rows", "scattered"), default="rows")
            if choices.get(f"runs:{node.name}", "rows") == "rows":
                node = msgspec.structs.replace(node, op=ROW_RUNS, args=args)
        nodes.append(node)
    if not any(n.op == ROW_RUNS for n in nodes):
        return graph, structure
    return msgspec.structs.replace(graph, nodes=_read(graph, nodes, finder.indices)), structure


def _read(graph: Graph, nodes: list[Node], unread: set[str]) -> tuple[Node, ...]:
    """The nodes without indices that nothing reads any more, and without what only those read."""
    while True:
        read = {name for n in nodes for name in references([*n.args, *n.kwargs.values()])} | set(returned(graph))
        kept = [n for n in nodes if n.name in read or n.name not in unread]
        if len(kept) == len(nodes):
            return tuple(nodes)
        nodes = kept


class _Finder:
    """The sums of one graph. indices: the nodes that name rows."""

    def __init__(self, graph: Graph) -> None:
        self.nodes, self.known = {n.name: n for n in graph.nodes}, metas(graph)
        self.indices = set[str]()

    def sums(self, node: Node) -> tuple[Any, ...] | None:
        """(x, starts, values) of a sum over runs, else None."""
        if node.op != "aten.index_add.default" or node.kwargs or len(node.args) != 4 or node.args[1] != 0:
            return None
        x, values = (self._meta(node.args[k]) for k in (0, 3))
        starts = self._starts(node.args[2])
        if x is None or values is None or starts is None or x.dtype != values.dtype or x.dtype not in DTYPES:
            return None
        rows, index = self._rows, self._meta(node.args[2])
        assert index is not None
        if x.shape[:1] != (rows,) or len(x.shape) != len(values.shape) or index.shape != values.shape[:1]:
            return None
        if x.shape[1:] != values.shape[1:]:
            return None
        return node.args[0], starts, node.args[3]

    def _starts(self, argument: Any) -> Any:
        """Where the rows begin that an index repeats, else None. `_rows`: how many those are."""
        node = self._node(argument)
        if node is None or node.op not in ("aten.repeat_interleave.self_Tensor", "aten.repeat_interleave.Tensor"):
            return None
        counts = self._node(node.args[-1]) if len(node.args) <= 2 else None
        places = self._node(node.args[0]) if len(node.args) == 2 else None
        if counts is None or not counts.outs or counts.outs[0] is None or len(counts.outs[0].shape) != 1:
            return None
        self._rows = counts.outs[0].shape[0]
        if node.op.endswith("self_Tensor") and (places is None or not self._counts_up(places)):
            return None
        starts = self._differences(counts)
        meta = self._meta(starts)
        if meta is None or meta.dtype not in WHOLE or len(meta.shape) != 1:
            return None
        self.indices |= {n.name for n in (node, counts, places) if n is not None}
        self.indices |= {name for name in references(list(counts.args)) if self._is_slice(name)}
        return starts

    def _counts_up(self, node: Node) -> bool:
        """Whether a node is 0, 1, 2 ... for each row."""
        first = node.args[0] if node.args else None
        last = first.get("size") if isinstance(first, dict) else first
        return node.op == "aten.arange.default" and len(node.args) == 1 and last == self._rows

    def _differences(self, node: Node) -> Any:
        """The tensor of whose neighbours a node has the differences, else None."""
        if node.op == "aten.diff.default" and not node.kwargs and len(node.args) == 1:
            return node.args[0]
        if node.op != "aten.sub.Tensor" or node.kwargs or len(node.args) != 2:
            return None
        after, before = (self._slice(argument) for argument in node.args)
        if after is None or before is None or after[0] != before[0]:
            return None
        return after[0] if after[1] == 1 and after[2] >= END and before[1] == 0 and before[2] == -1 else None

    def _is_slice(self, name: str) -> bool:
        return name in self.nodes and self.nodes[name].op == "aten.slice.Tensor"

    def _slice(self, argument: Any) -> tuple[Any, int, int] | None:
        """(of what, from, to) of a slice along the first dimension, else None."""
        node = self._node(argument)
        if node is None or node.op != "aten.slice.Tensor":
            return None
        rest: list[Any] = [*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :]]
        dim, start, end, step = rest
        start, end = 0 if start is None else start, END if end is None else end
        if dim != 0 or step != 1 or not isinstance(start, int) or not isinstance(end, int):
            return None
        return node.args[0], start, end

    def _node(self, argument: Any) -> Node | None:
        return self.nodes.get(argument["node"]) if isinstance(argument, dict) and "node" in argument else None

    def _meta(self, argument: Any) -> Meta | None:
        return self.known.get(argument["node"]) if isinstance(argument, dict) and "node" in argument else None
