"""What rewrites need to write nodes in the place of others: new names, metas and the sizes of views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, Size, Symbol
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.rewrite.pinned_sizes import hint, metas

PACK = 8
"""Numbers of a half type that the library's fast products read at a time."""
Rewrite = tuple[bool, Callable[[], None]]
"""A rewrite of one node: whether it is the default, and what writes it."""


class NodeWriter:
    """The nodes of a graph as they are rewritten, in `nodes`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.known, self.nodes = metas(graph), list[Node]()
        self.symbols: Mapping[str, Symbol] = {s.name: s for s in graph.symbols}
        self._taken = set(self.known)

    def rewritten(
        self, kind: str, possible: Callable[[Node], Rewrite | None], choices: Mapping[str, Value]
    ) -> tuple[Graph, dict[str, Choice]]:
        """(the graph with nodes rewritten where that is chosen, what could be chosen): `<kind>:<node>`, a yes or no.

        possible: what could be written for a node; None where it stays.
        """
        structure = dict[str, Choice]()
        for node in self._graph.nodes:
            key, found = f"{kind}:{node.name}", possible(node)
            if found is not None:
                structure[key] = Choice(options=(False, True), default=found[0])
            if found is not None and choices.get(key, found[0]):
                found[1]()
            else:
                self.nodes.append(node)
        return (msgspec.structs.replace(self._graph, nodes=tuple(self.nodes)) if structure else self._graph), structure

    def meta(self, value: Any) -> Meta | None:
        """The meta of an argument that is a value; None for anything else."""
        return self.known.get(value["node"]) if isinstance(value, dict) and "node" in value else None

    def hints(self, shape: Sequence[Size]) -> int:
        """The elements of a shape at the captured sizes."""
        return prod(hint(size, self.symbols) for size in shape)

    def add(
        self, of: Node, op: str, args: Sequence[Any], shape: Sequence[Size], *, dtype: str, last: bool = False
    ) -> dict[str, str]:
        """Writes a node; returns the argument that names it. of: the node it stands for, whose name the last takes."""
        name = of.name if last else self._name(of.name)
        meta = Meta(dtype=dtype, shape=tuple(shape))
        self.nodes.append(Node(name=name, op=op, args=tuple(args), outs=(meta,), module=of.module))
        self.known[name] = meta
        return {"node": name}

    def convert(self, of: Node, value: Any, shape: Sequence[Size], *, dtype: str, last: bool = False) -> dict[str, str]:
        """Writes a conversion to a dtype."""
        made = self.add(of, "aten._to_copy.default", [value], shape, dtype=dtype, last=last)
        self.nodes[-1] = msgspec.structs.replace(self.nodes[-1], kwargs={"dtype": {"dtype": dtype}})
        return made

    def view(self, of: Node, value: Any, shape: Sequence[Size], *, dtype: str, last: bool = False) -> dict[str, str]:
        """Writes a view under another shape."""
        return self.add(of, "aten.view.default", [value, [argument(s) for s in shape]], shape, dtype=dtype, last=last)

    def _name(self, base: str) -> str:
        count = 1
        while f"{base}_part{count}" in self._taken:
            count += 1
        self._taken.add(f"{base}_part{count}")
        return f"{base}_part{count}"


def times(*sizes: Size) -> Size:
    """The product of sizes."""
    symbolic = [size for size in sizes if not isinstance(size, int)]
    number = prod(size for size in sizes if isinstance(size, int))
    if not symbolic:
        return number
    text = "*".join(f"({size})" for size in symbolic)
    return text if number == 1 else f"{number}*{text}"


def plus(size: Size, number: int) -> Size:
    """A size and a number more."""
    return size + number if isinstance(size, int) else f"({size}) + {number}" if number else size


def argument(size: Size) -> Any:
    """A size as an argument of a node."""
    return size if isinstance(size, int) else {"size": size}


__all__ = ["PACK", "NodeWriter", "Rewrite", "argument", "plus", "times"]
