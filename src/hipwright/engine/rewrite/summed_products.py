"""Sums of products with one result as one product over their terms side by side: `linear(x) + linear(y)`.

x A' + y B' is [x y] [A B]': one pass over the result in place of two and of a sum, and terms enough for matrix units
where each product has few (the layer of Hamilton et al., "GraphSAGE", NeurIPS 2017, adds a product of a node and one of
its neighbours). Templates read both operands where they lie, through the concatenation; the weights are joined in
`prepare`, or by the kernel that splits them. Sums of more products are joined two by two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, returned, users
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.node_writer import NodeWriter
from hipwright.engine.templates.gemm.split_precision import MIN_DEPTH, MIN_SIDE

LEAST_OPERATIONS = 1e9
"""Operations of both products from which on one is the default. A round figure, not measured."""
_DTYPES = HALVES | {"float32"}


def summed_products(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such sums as one product where that is chosen, what could be chosen).

    The choice is `joined:<sum>`. By default float32 products that a split product can take are joined in runs for
    NVIDIA GPUs; for half types the library would read a copy of the operands.
    """
    structure = dict[str, Choice]()
    if choices.get("library"):
        return graph, structure
    refused = set[str]()
    while True:
        finder = _Finder(graph)
        found = ((node, pair) for node in graph.nodes if node.name not in refused and (pair := finder.pair(node)))
        node, pair = next(found, (None, None))
        if node is None or pair is None:
            return graph, structure
        key = f"joined:{node.name}"
        structure[key] = Choice(options=(False, True), default=bool(choices.get(SPLIT)) and finder.usual(pair))
        if choices.get(key, structure[key].default):
            graph = _joined(graph, node, pair)
        else:
            refused.add(node.name)


@dataclass(frozen=True)
class _Pair:
    """Two products that a sum adds."""

    first: Node
    second: Node


class _Finder:
    """The sums of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.writer = NodeWriter(graph)
        self.nodes = {n.name: n for n in graph.nodes}
        self.users, self.kept = users(graph), set(returned(graph))

    def pair(self, node: Node) -> _Pair | None:
        """The two linear layers that a node adds, which nothing else reads; else None."""
        if node.op not in ("aten.add.Tensor", "aten.add_.Tensor") or node.kwargs or len(node.args) != 2:
            return None
        out = node.outs[0]
        found = [self._layer(argument, out) for argument in node.args]
        first, second = found
        if first is None or second is None or first is second or out is None:
            return None
        return _Pair(first, second)

    def _layer(self, argument: Any, out: Meta | None) -> Node | None:
        """The linear layer with the sum's shape that an argument is."""
        node = self.nodes.get(argument["node"]) if isinstance(argument, dict) and "node" in argument else None
        if node is None or node.op != "aten.linear.default" or node.kwargs or out is None:
            return None
        x, weight = (self.writer.meta(a) for a in node.args[:2])
        made = node.outs[0]
        if x is None or weight is None or made is None or made.shape != out.shape or out.dtype not in _DTYPES:
            return None
        alike = {x.dtype, weight.dtype, made.dtype} == {out.dtype} and len(weight.shape) == 2 and len(x.shape) > 1
        known = all(isinstance(size, int) for size in (*weight.shape, x.shape[-1]))
        alone = len(self.users.get(node.name, [])) == 1 and node.name not in self.kept
        return node if alike and known and alone else None

    def usual(self, pair: _Pair) -> bool:
        """Whether one product is the default: a split product takes it.

        Weights that several products read may be those of a loop's steps, whose text would join them at every step.
        """
        out = pair.first.outs[0]
        weights = [node.args[1]["node"] for node in (pair.first, pair.second)]
        if any(len(self.users.get(name, [])) > 1 for name in weights):
            return False
        terms = sum(_terms(self.writer, node) for node in (pair.first, pair.second))
        assert out is not None
        columns, elements = int(out.shape[-1]), self.writer.hints(out.shape)
        enough = min(columns, elements // max(columns, 1)) >= MIN_SIDE and terms >= MIN_DEPTH
        return out.dtype == "float32" and enough and 2.0 * elements * terms >= LEAST_OPERATIONS


def _terms(writer: NodeWriter, node: Node) -> int:
    meta = writer.meta(node.args[1])
    assert meta is not None
    return int(meta.shape[1])


def _joined(graph: Graph, total: Node, pair: _Pair) -> Graph:
    """The graph with one product in the place of the sum."""
    writer = NodeWriter(graph)
    for node in graph.nodes:
        if node.name in (pair.first.name, pair.second.name):
            continue
        if node.name != total.name:
            writer.nodes.append(node)
            continue
        _write(writer, total, (pair.first, pair.second))
    return msgspec.structs.replace(graph, nodes=tuple(writer.nodes))


def _write(writer: NodeWriter, total: Node, products: Sequence[Node]) -> None:
    out = total.outs[0]
    assert out is not None
    dtype, terms = out.dtype, sum(_terms(writer, node) for node in products)
    joined = []
    for place in (0, 1):
        pieces = [node.args[place] for node in products]
        meta = writer.meta(pieces[0])
        assert meta is not None
        shape = [*meta.shape[:-1], terms]
        joined.append(writer.add(total, "aten.cat.default", [pieces, len(shape) - 1], shape, dtype=dtype))
    biases = [node.args[2] for node in products if len(node.args) > 2 and node.args[2] is not None]
    bias = biases[0] if biases else None
    if len(biases) > 1:
        width = [out.shape[-1]]
        bias = writer.add(total, "aten.add.Tensor", biases, width, dtype=dtype)
    writer.add(total, "aten.linear.default", [*joined, bias], out.shape, dtype=dtype, last=True)


__all__ = ["summed_products"]
