"""State that is written at some places only: chains of functional operators that stand for writes into views.

torch.export makes `cache[0].index_copy_(0, slots, keys)` functional: select, index_copy, select_scatter, a new value of
the whole cache. `touched_places` reads such a chain back as writes, so that a program need not touch the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hipwright.capture.graph import Graph, Mutation, Node, references, short

VIEWS = ("select", "slice", "view", "_unsafe_view", "reshape", "unsqueeze", "transpose", "permute")
SETS = ("index_copy", "index_put", "scatter", "copy")
PARTS = {"select_scatter": "select", "slice_scatter": "slice"}
"""Operators that replace a part of a value, and the view of that part."""

View = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class PlacedWrite:
    """One write. views: from the whole tensor to what is written in, each (operator, arguments without the tensor).

    node: of an operator of `SETS`, whose places its arguments name; None where the value, another node, fills the view.
    """

    views: tuple[View, ...]
    node: Node | None
    value: str = ""


@dataclass
class TouchedPlaces:
    """The writes of a mutation, in order. inside: the chain's nodes but for the last one."""

    writes: list[PlacedWrite]
    inside: set[str] = field(default_factory=set)


def touched_places(graph: Graph, mutation: Mutation) -> TouchedPlaces | None:
    """The writes that make the value of a mutation; None where it is another value, or where others need values that
    the writes destroy.
    """
    base = next((i.name for i in graph.inputs if i.access == mutation.access), "")
    chain = _Chain({node.name: node for node in graph.nodes}, base)
    writes = chain.state(mutation.node)
    if not writes or all(write.node is None and not write.views for write in writes):
        return None
    inside = chain.seen - {mutation.node}
    readers: dict[str, set[str]] = {}
    for node in graph.nodes:
        for name in references([list(node.args), list(node.kwargs.values())]):
            readers.setdefault(name, set()).add(node.name)
    returned = set(references(graph.output)) | {m.node for m in graph.mutations if m is not mutation}
    if any(readers.get(name, set()) - chain.seen or name in returned for name in inside):
        return None
    after = bool(readers.get(mutation.node))
    if (readers.get(base, set()) - chain.seen or base in returned) and after:
        return None  # a kernel might need what was there before and after
    return TouchedPlaces(writes, inside)


class _Chain:
    """Follows one chain from its last node to the tensor `base`. seen: the nodes that belong to it."""

    def __init__(self, nodes: Mapping[str, Node], base: str) -> None:
        self._nodes, self._base = nodes, base
        self.seen: set[str] = set()

    def state(self, name: str) -> list[PlacedWrite] | None:
        """The writes after which the whole tensor holds a node's value; None where it is no such value."""
        if name == self._base:
            return []
        node = self._nodes.get(name)
        if node is None:
            return None
        kind = short(node.op)
        if kind in ("view", "_unsafe_view", "reshape"):
            return self._viewed_back(node)
        if kind not in SETS and kind not in PARTS:
            return None
        before = self.state(_first(node))
        here = None if before is None else self._step(node, _first(node), ())
        return None if before is None or here is None else [*before, *here]

    def _viewed_back(self, node: Node) -> list[PlacedWrite] | None:
        """A value that was viewed under another shape, written, and viewed under its own shape again."""
        root = self._root(_first(node))
        if root is None:
            return None
        before, views = root
        shape = self._nodes[before].outs[0] if before in self._nodes else None
        earlier = self.state(before)
        if earlier is None or len(views) != 1 or views[0][0] not in ("view", "_unsafe_view", "reshape"):
            return None
        if shape is not None and node.outs[0] is not None and shape.shape != node.outs[0].shape:
            return None
        here = self._inside(_first(node), before, views)
        if here is None:
            return None
        self.seen.add(node.name)
        return [*earlier, *here]

    def _step(self, node: Node, whole: str, views: tuple[View, ...]) -> list[PlacedWrite] | None:
        """The writes of one node into a view of the tensor whose value is `whole`."""
        kind = short(node.op)
        self.seen.add(node.name)
        if kind == "copy":
            return [PlacedWrite(views, None, node.args[1]["node"])] if _is_node(node.args[1]) else None
        if kind in SETS:
            return [PlacedWrite(views, node)]
        part = (*views, (PARTS[kind], tuple(node.args[2:])))
        source = node.args[1]["node"]
        root = self._root(source)
        if root is None or root[0] != whole:
            return [PlacedWrite(part, None, source)]
        return self._inside(source, whole, part)

    def _inside(self, name: str, whole: str, views: tuple[View, ...]) -> list[PlacedWrite] | None:
        """The writes after which a view of `whole` holds a node's value."""
        root = self._root(name, views_only=True)
        if root is not None:
            if root != (whole, views):
                return None
            self._see_views(name, whole)
            return []
        node = self._nodes[name]
        before = self._inside(_first(node), whole, views)
        if before is None or (before and short(node.op) in PARTS):
            return None
        here = self._step(node, whole, views)
        return None if here is None else [*before, *here]

    def _root(self, name: str, *, views_only: bool = False) -> tuple[str, tuple[View, ...]] | None:
        """(the node of which another one is a written view, the views); None where no view leads there."""
        views: list[View] = []
        while name in self._nodes:
            node = self._nodes[name]
            kind = short(node.op)
            if kind in VIEWS and not node.op.endswith(".dtype"):  # which reads bits as another type
                views.append((kind, tuple(node.args[1:])))
            elif views or views_only or (kind not in SETS and kind not in PARTS):
                break
            name = _first(node)
        whole = name == self._base or (name in self._nodes and self._is_state(name))
        return (name, tuple(reversed(views))) if views and whole else None

    def _is_state(self, name: str) -> bool:
        kept = set(self.seen)
        found = self.state(name) is not None
        self.seen = kept
        return found

    def _see_views(self, name: str, whole: str) -> None:
        while name != whole:
            self.seen.add(name)
            name = _first(self._nodes[name])


def _is_node(argument: Any) -> bool:
    return isinstance(argument, dict) and "node" in argument


def _first(node: Node) -> str:
    """The name of a node's first argument."""
    return str(node.args[0]["node"]) if node.args and _is_node(node.args[0]) else ""
