"""A product, its bias and its activation as one call of the library, which has kernels for them.

`_addmm_activation` is cuBLASLt's and hipBLASLt's epilogue: ReLU, or GELU by tanh. What reads the activation reads it
from memory anyway (another product), so that a kernel of our own for bias and activation would read and write it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, Size, returned, short, users
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.pinned_sizes import hint, metas

LEAST = 1 << 20
"""Elements of the result from which it is the default: fewer stay in the cache. A round figure, not measured."""
_READERS = frozenset({"linear", "mm", "addmm", "bmm", "matmul", "conv1d", "conv2d", "convolution"})
"""Products, which read the activation from memory."""
_PASSING = frozenset({"view", "reshape", "_unsafe_view", "alias", "detach"})
OP = "aten._addmm_activation.default"


def library_epilogues(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such calls where they are chosen, what could be chosen).

    The choice is `epilogue:<product>`. By default they are called in runs for NVIDIA GPUs.
    """
    if choices.get("library"):
        return graph, {}
    finder = _Finder(graph)
    structure, made, gone = dict[str, Choice](), dict[str, list[Node]](), set[str]()
    for node in graph.nodes:
        activation = finder.activation(node)
        if activation is None:
            continue
        key = f"epilogue:{node.name}"
        structure[key] = Choice(options=(False, True), default=bool(choices.get(SPLIT)))
        if choices.get(key, structure[key].default):
            made[activation.name] = finder.call(node, activation)
            gone.add(node.name)
    if not made:
        return graph, structure
    kept = [node for node in graph.nodes if node.name not in gone]
    nodes = [new for node in kept for new in made.get(node.name, [node])]
    return msgspec.structs.replace(graph, nodes=tuple(nodes)), structure


class _Finder:
    """Products of one graph, with what reads them."""

    def __init__(self, graph: Graph) -> None:
        self.known = metas(graph)
        self.symbols = {s.name: s for s in graph.symbols}
        self.taken = set(self.known)
        self.users, self.kept = users(graph), set(returned(graph))

    def activation(self, node: Node) -> Node | None:
        """The activation that alone reads a product of half types with a bias, and that products alone read."""
        if node.op != "aten.linear.default" or len(node.args) < 3 or node.args[2] is None or node.name in self.kept:
            return None
        out, users = node.outs[0], self.users.get(node.name, [])
        if out is None or out.dtype not in HALVES or len(out.shape) < 2 or len(users) != 1:
            return None
        activation = users[0]
        if _kind(activation) is None or prod(hint(size, self.symbols) for size in out.shape) < LEAST:
            return None
        return activation if self._feeds_products(activation.name) else None

    def _feeds_products(self, name: str) -> bool:
        """Whether products alone read a value, through views at most."""
        users = self.users.get(name, [])
        if not users or name in self.kept:
            return False
        return all(short(n.op) in _READERS or (short(n.op) in _PASSING and self._feeds_products(n.name)) for n in users)

    def call(self, node: Node, activation: Node) -> list[Node]:
        """The call in the place of the activation, with the views that it needs."""
        x, weight, bias = node.args[:3]
        out, terms = node.outs[0], self._meta(x).shape[-1]
        assert out is not None
        width, rows = out.shape[-1], _product(out.shape[:-1])
        made: list[Node] = []

        def add(op: str, args: Sequence[Any], shape: Sequence[Size], name: str = "") -> dict[str, str]:
            made.append(Node(name=name or self._name(node.name), op=op, args=tuple(args), outs=(_meta(out, shape),)))
            return {"node": made[-1].name}

        flat = len(out.shape) == 2
        x = x if flat else add("aten.view.default", [x, [_argument(rows), _argument(terms)]], [rows, terms])
        turned = add("aten.transpose.int", [weight, 0, 1], [terms, width])
        found = add(OP, [bias, x, turned], [rows, width], activation.name if flat else "")
        made[-1] = msgspec.structs.replace(made[-1], kwargs={"use_gelu": _kind(activation) == "gelu"})
        if not flat:
            add("aten.view.default", [found, list(map(_argument, out.shape))], out.shape, activation.name)
        return made

    def _meta(self, value: Any) -> Meta:
        meta = self.known[value["node"]]
        assert meta is not None
        return meta

    def _name(self, base: str) -> str:
        name, count = f"{base}_called", 0
        while name in self.taken:
            count += 1
            name = f"{base}_called_{count}"
        self.taken.add(name)
        return name


def _kind(node: Node) -> str | None:
    """Which of the library's activations a node is."""
    if short(node.op) == "relu":
        return "relu"
    return "gelu" if short(node.op) == "gelu" and node.kwargs.get("approximate") == "tanh" else None


def _meta(like: Meta, shape: Sequence[Size]) -> Meta:
    return Meta(dtype=like.dtype, shape=tuple(shape))


def _product(sizes: Sequence[Size]) -> Size:
    if all(isinstance(size, int) for size in sizes):
        return prod(int(size) for size in sizes)
    return "*".join(f"({size})" if isinstance(size, str) and not size.isalnum() else str(size) for size in sizes)


def _argument(size: Size) -> Any:
    return size if isinstance(size, int) else {"size": size}
