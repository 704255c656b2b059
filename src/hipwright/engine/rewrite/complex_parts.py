"""Complex arithmetic between real values, as real operators on the two parts, so that kernels compute it.

What ends in real numbers (`view_as_real`, `abs`, `angle`) is followed back over products, sums, views and conjugates to
where complex numbers come from: a view of real ones, `polar`, or a tensor that is complex in memory, whose parts are a
view. Complex results and what a library operator needs stay complex.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, references
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.rewrite.pinned_sizes import metas

PARTS = {"complex64": "float32", "complex128": "float64"}
SINKS = {"aten.view_as_real.default", "aten.abs.default", "aten.angle.default"}
VIEWS = {
    "aten.alias.default",
    "aten.clone.default",
    "aten.expand.default",
    "aten.neg.default",
    "aten.permute.default",
    "aten.reshape.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.squeeze.dim",
    "aten.transpose.int",
    "aten.unsqueeze.default",
    "aten.view.default",
    "aten.mean.dim",
    "aten.sum.dim_IntList",
}
"""Operators that do the same to both parts."""
SUMS = {"aten.add.Tensor", "aten.sub.Tensor"}
PRODUCTS = {"aten.mul.Tensor", "aten.mul.Scalar"}
SOURCES = {"aten.view_as_complex.default", "aten.polar.default", "aten.complex.default"}
_FOLLOWED = VIEWS | SUMS | PRODUCTS | SOURCES | {"aten._conj.default", "aten._conj_physical.default"}
KEY = "complex"

Pair = tuple[Any, Any]


def complex_parts(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """The graph on real parts where that replaces complex operators, and the choice: parts or the library."""
    known = metas(graph)
    rewriting = _Parts(graph, known)
    if choices.get("library") or not rewriting.pays:
        return graph, {}
    offered = {KEY: Choice(options=("parts", "library"), default="parts")}
    return (graph if choices.get(KEY) == "library" else rewriting.graph()), offered


class _Parts:
    """One graph's rewriting."""

    def __init__(self, graph: Graph, known: Mapping[str, Meta | None]) -> None:
        self._graph, self._known = graph, known
        self._nodes = {node.name: node for node in graph.nodes}
        self._pairs: dict[str, Pair] = {}
        self._made: list[Node] = []
        self._wanted = self._needed()
        followed = any(name in self._nodes and self._follows(self._nodes[name]) for name in self._wanted)
        self.pays = followed or any(self._ends(n) and n.op != "aten.view_as_real.default" for n in graph.nodes)

    def _is_complex(self, argument: Any) -> bool:
        meta = self._known.get(argument["node"]) if isinstance(argument, dict) and "node" in argument else None
        return meta is not None and meta.dtype in PARTS

    def _follows(self, node: Node) -> bool:
        """Whether a complex node is computed on parts."""
        literal = any(isinstance(a, dict) and "complex" in a for a in node.args)
        if node.op not in _FOLLOWED or node.kwargs or literal:
            return False
        if node.op not in SUMS or all(map(self._is_complex, node.args[:2])):
            return True
        meta = self._known.get(node.args[0]["node"]) if self._is_complex(node.args[0]) else None
        return meta is not None and node.outs[0] is not None and meta.shape == node.outs[0].shape

    def _ends(self, node: Node) -> bool:
        return node.op in SINKS and bool(node.args) and self._is_complex(node.args[0])

    def _needed(self) -> set[str]:
        """The complex values whose parts are needed."""
        wanted: set[str] = set()
        for node in reversed(self._graph.nodes):
            if self._ends(node) or (node.name in wanted and self._follows(node)):
                wanted |= {a["node"] for a in node.args if self._is_complex(a)}
        return wanted

    def graph(self) -> Graph:
        """The rewritten graph, without complex values that nothing reads any more."""
        for tensor in self._graph.inputs:
            if tensor.name in self._wanted:
                self._in_memory(tensor.name, tensor.meta)
        for node in self._graph.nodes:
            if self._ends(node):
                self._made.append(self._end(node))
                continue
            self._made.append(node)
            meta = node.outs[0] if node.outs else None
            if node.name in self._wanted and meta is not None:
                if self._follows(node):
                    self._pairs[node.name] = self._computed(node, meta)
                else:
                    self._in_memory(node.name, meta)
        return msgspec.structs.replace(self._graph, nodes=tuple(self._read()))

    def _read(self) -> list[Node]:
        """The nodes but for followed complex ones that nothing reads."""
        read = {*references(self._graph.output), *(m.node for m in self._graph.mutations)}
        kept: list[Node] = []
        for node in reversed(self._made):
            meta = node.outs[0] if node.outs else None
            unread = meta is not None and meta.dtype in PARTS and node.op in _FOLLOWED and node.name not in read
            if not unread:
                kept.append(node)
                read |= set(references([*node.args, *node.kwargs.values()]))
        return kept[::-1]

    # ------------------------------------------------------------ parts

    def _add(self, name: str, op: str, args: tuple[Any, ...], meta: Meta) -> dict[str, str]:
        real = Meta(dtype=PARTS.get(meta.dtype, meta.dtype), shape=meta.shape)
        self._made.append(Node(name=name, op=op, args=args, outs=(real,)))
        return {"node": name}

    def _in_memory(self, name: str, meta: Meta) -> None:
        """The parts of a tensor that is complex in memory: a view of it, without a kernel."""
        whole = self._add(f"{name}_parts", "aten.view_as_real.default", ({"node": name},), _paired(meta))
        self._pairs[name] = self._halves(name, whole, meta)

    def _halves(self, name: str, whole: Any, meta: Meta) -> Pair:
        last = len(meta.shape)
        return (
            self._add(f"{name}_re", "aten.select.int", (whole, last, 0), meta),
            self._add(f"{name}_im", "aten.select.int", (whole, last, 1), meta),
        )

    def _pair(self, argument: Any) -> Pair:
        return self._pairs[argument["node"]]

    def _computed(self, node: Node, meta: Meta) -> Pair:
        """The parts of a complex operator's result."""
        name, args = node.name, node.args
        if node.op == "aten.view_as_complex.default":
            return self._halves(name, args[0], meta)
        if node.op == "aten.complex.default":
            return args[0], args[1]
        if node.op == "aten.polar.default":
            cos = self._add(f"{name}_cos", "aten.cos.default", (args[1],), meta)
            sin = self._add(f"{name}_sin", "aten.sin.default", (args[1],), meta)
            return self._both(name, "aten.mul.Tensor", (args[0], cos), (args[0], sin), meta)
        if node.op in VIEWS:
            re, im = self._pair(args[0])
            return self._both(name, node.op, (re, *args[1:]), (im, *args[1:]), meta)
        if node.op in SUMS:
            return self._sum(node, meta)
        if node.op in PRODUCTS:
            return self._product(node, meta)
        re, im = self._pair(args[0])
        return re, self._add(f"{name}_im", "aten.neg.default", (im,), meta)

    def _both(self, name: str, op: str, re: tuple[Any, ...], im: tuple[Any, ...], meta: Meta) -> Pair:
        return self._add(f"{name}_re", op, re, meta), self._add(f"{name}_im", op, im, meta)

    def _sum(self, node: Node, meta: Meta) -> Pair:
        re, im = self._pair(node.args[0])
        other = node.args[1]
        if not self._is_complex(other):
            return self._add(f"{node.name}_re", node.op, (re, other), meta), im
        more, imaginary = self._pair(other)
        return self._both(node.name, node.op, (re, more), (im, imaginary), meta)

    def _product(self, node: Node, meta: Meta) -> Pair:
        a, b = node.args[:2]
        name, times = node.name, "aten.mul.Tensor"
        if not (self._is_complex(a) and self._is_complex(b)):
            (re, im), factor = (self._pair(a), b) if self._is_complex(a) else (self._pair(b), a)
            return self._both(name, times, (re, factor), (im, factor), meta)
        (ar, ai), (br, bi) = self._pair(a), self._pair(b)
        rr, ii = self._both(f"{name}_same", times, (ar, br), (ai, bi), meta)
        ri, ir = self._both(f"{name}_cross", times, (ar, bi), (ai, br), meta)
        return (
            self._add(f"{name}_re", "aten.sub.Tensor", (rr, ii), meta),
            self._add(f"{name}_im", "aten.add.Tensor", (ri, ir), meta),
        )

    def _end(self, node: Node) -> Node:
        """The real operator in place of one that takes a complex value."""
        re, im = self._pair(node.args[0])
        meta = self._known[node.args[0]["node"]]
        assert meta is not None
        if node.op == "aten.view_as_real.default":
            return msgspec.structs.replace(node, op="aten.stack.default", args=([re, im], len(meta.shape)))
        if node.op == "aten.abs.default":
            return msgspec.structs.replace(node, op="aten.hypot.default", args=(re, im))
        return msgspec.structs.replace(node, op="aten.atan2.default", args=(im, re))


def _paired(meta: Meta) -> Meta:
    return Meta(dtype=PARTS[meta.dtype], shape=(*meta.shape, 2))
