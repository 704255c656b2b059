"""Softmax with a sink that a module writes out: a learned score that takes weight from the keys and has no value.

`top = maximum(s.amax(-1, True), sinks); e = exp(s - top); e / (e.sum(-1, True) + exp(sinks - top))` is the softmax of
the scores and the sink together, without the sink's weight (Xiao et al., "Efficient Streaming Language Models with
Attention Sinks", ICLR 2024; gpt-oss has one a head).
"""

from __future__ import annotations

from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Node, references, returned, short, users

SINK_SOFTMAX = "hip.sink_softmax"
"""What stands for it while attention is looked for: scores, the dimension, sinks. No program has it."""


def with_sinks(graph: Graph) -> Graph:
    """The graph with each such softmax as one node, and without the nodes that only it read."""
    finder = _Finder(graph)
    found = {node.name: sinks for node in graph.nodes if (sinks := finder.sinks(node)) is not None}
    if not found:
        return graph
    nodes = [
        msgspec.structs.replace(node, op=SINK_SOFTMAX, args=found[node.name][0]) if node.name in found else node
        for node in graph.nodes
    ]
    inside = {name for _, names in found.values() for name in names}
    return msgspec.structs.replace(graph, nodes=tuple(n for n in nodes if n.name not in inside))


class _Finder:
    """The divisions of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = {n.name: n for n in graph.nodes}
        self.users, self.kept = users(graph), set(returned(graph))

    def sinks(self, node: Node) -> tuple[tuple[Any, ...], set[str]] | None:
        """((scores, dimension, sinks), the nodes before the division that nothing else reads), else None."""
        powers, total = self._pair(node.name, "div")
        scores, top = self._difference(powers)
        terms = self._pair(total, "add")
        own = next((t for t in terms if self._reduces(t, "sum", powers)), "")
        other = next((t for t in terms if t != own), "")
        sinks, same = self._difference(other)
        compared = self._pair(top, "maximum")
        largest = next((t for t in compared if self._reduces(t, "amax", scores)), "")
        if not (own and other and largest and sinks) or same != top or set(compared) != {largest, sinks}:
            return None
        shifted, moved = self._argument(powers), self._argument(other)
        names = {powers, total, shifted, top, own, other, moved, largest}
        read = {user.name for name in names for user in self.users.get(name, [])}
        if not read <= names | {node.name} or names & self.kept:
            return None
        return ({"node": scores}, -1, {"node": sinks}), names

    def _difference(self, name: str) -> tuple[str, str]:
        """The a and b of `exp(a - b)`; nothing where a value is another."""
        node = self.nodes.get(name)
        return self._pair(self._argument(name), "sub") if node is not None and short(node.op) == "exp" else ("", "")

    def _argument(self, name: str) -> str:
        """The first value that a node reads."""
        return next(references(list(self.nodes[name].args)), "")

    def _pair(self, name: str, kind: str) -> tuple[str, str]:
        """The two values that a node of a kind computes with; nothing where it is another node."""
        node = self.nodes.get(name)
        if node is None or short(node.op) != kind or node.kwargs or len(node.args) != 2:
            return "", ""
        found = [a["node"] if isinstance(a, dict) and "node" in a else "" for a in node.args]
        return (found[0], found[1]) if all(found) else ("", "")

    def _reduces(self, name: str, kind: str, source: str) -> bool:
        """Whether a value is a reduction of another's last dimension, kept."""
        node = self.nodes.get(name)
        if node is None or short(node.op) != kind or node.kwargs or len(node.args) != 3:
            return False
        return node.args[0] == {"node": source} and list(node.args[1]) == [-1] and node.args[2] is True
