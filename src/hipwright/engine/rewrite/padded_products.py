"""Products of half types with odd sizes, in multiples of 8: the library's fast kernels read and write 16 bytes at a
time, and rows of 479 numbers begin at no multiple of that.

Terms are padded with zeros, which add nothing to a finite sum; where a factor is not finite, they are multiplied with
zeros. Columns of the result are padded where kernels alone read it: they read the part that is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, Size, returned, short, users
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.node_writer import PACK, NodeWriter, Rewrite

LEAST_TERMS, LEAST_OPERATIONS = 65, 4e9
"""Terms, and floating-point operations, from which a copy of the operands is worth its time. Round figures."""
SUFFIX = "_padded"
"""Ends the names of what is padded."""
_ELEMENTWISE = {"add", "sub", "mul", "div", "tanh", "sigmoid", "relu", "gelu", "silu", "exp", "_to_copy", "to"}
_REDUCING = {"logsumexp", "cross_entropy_loss", "nll_loss_nd", "amax", "argmax", "max", "sum", "mean"}
_KERNELS = _ELEMENTWISE | _REDUCING | {"softmax", "log_softmax", "_softmax", "_log_softmax"}
"""Operators that kernels compute, which may read a part of a row."""
_FACTORS = {"linear": (0, 1), "mm": (0, 1), "addmm": (1, 2), "_addmm_activation": (1, 2), "matmul": (0, 1)}
"""The places of the two factors."""


def padded_products(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with padded products where that is chosen, what could be chosen).

    The choice is `pad:<product>`. By default products are padded in runs for NVIDIA GPUs.
    """
    if choices.get("library"):
        return graph, {}
    padding = _Padding(graph)

    def possible(node: Node) -> Rewrite | None:
        places = padding.places(node)
        terms, columns = padding.terms(node, places), padding.columns(node, places)
        if not (terms or columns):
            return None
        return bool(choices.get(SPLIT)), partial(padding.pad, node, places, terms, columns)

    return padding.rewritten("pad", possible, choices)


class _Padding(NodeWriter):
    """The padding of one graph's products."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._users, self._returned = users(graph), set(returned(graph))

    def places(self, node: Node) -> tuple[int, ...]:
        """The places of the factors of a large product of half types, whose second one is a matrix; else ()."""
        places, out = _FACTORS.get(short(node.op), ()), node.outs[0] if node.outs else None
        factors = [self.meta(node.args[k]) for k in places]
        first, second = factors if len(factors) == 2 else (None, None)
        if first is None or second is None or out is None or len(first.shape) < 2 or len(second.shape) != 2:
            return ()
        terms = first.shape[-1]
        if {first.dtype, second.dtype} - HALVES or not isinstance(terms, int):
            return ()
        operations = 2.0 * terms * self.hints(out.shape)
        return places if operations >= LEAST_OPERATIONS else ()

    def terms(self, node: Node, places: Sequence[int]) -> int:
        """By how much the terms are padded."""
        return _lacking(self._meta(node.args[places[0]]).shape[-1]) if places else 0

    def columns(self, node: Node, places: Sequence[int]) -> int:
        """By how much the columns of the result are padded."""
        out = node.outs[0] if node.outs else None
        users = self._users.get(node.name, [])
        if not places or out is None or short(node.op) not in ("linear", "mm") or node.name in self._returned:
            return 0
        return _lacking(out.shape[-1]) if users and all(short(n.op) in _KERNELS for n in users) else 0

    def pad(self, node: Node, places: Sequence[int], terms: int, columns: int) -> None:
        """Writes the product with its factors padded, and the part of its result that is there."""
        args, of_linear = list(node.args), short(node.op) == "linear"
        if terms:
            args[places[0]] = self._padded(args[places[0]], terms)
        if terms or columns:
            by = (columns, terms) if of_linear else (terms, columns)
            args[places[1]] = self._padded(args[places[1]], *by)
        if columns and of_linear and len(args) > 2 and args[2] is not None:
            args[2] = self._padded(args[2], columns)
        out = node.outs[0]
        if not columns or out is None:
            self.nodes.append(msgspec.structs.replace(node, args=tuple(args)))
            return
        width = int(out.shape[-1])
        wide = Meta(dtype=out.dtype, shape=(*out.shape[:-1], width + columns))
        name = self._padded_name(node.name)
        self.nodes.append(msgspec.structs.replace(node, name=name, args=tuple(args), outs=(wide,)))
        part = ({"node": name}, len(out.shape) - 1, 0, width)
        self.nodes.append(Node(name=node.name, op="aten.slice.Tensor", args=part, outs=(out,), module=node.module))

    def _padded(self, value: Any, *by: int) -> dict[str, str]:
        """The value with zeros behind its last dimensions: by how many, of each of them in order."""
        meta, name = self._meta(value), self._padded_name(value["node"])
        shape = list(meta.shape)
        amounts: list[int] = []
        for n, more in enumerate(reversed(by), start=1):
            amounts += [0, more]
            size = shape[-n]
            shape[-n] = size + more if isinstance(size, int) else size
        out = Meta(dtype=meta.dtype, shape=tuple(shape))
        self.nodes.append(Node(name=name, op="aten.constant_pad_nd.default", args=(value, amounts, 0.0), outs=(out,)))
        return {"node": name}

    def _meta(self, value: Any) -> Meta:
        meta = self.meta(value)
        assert meta is not None
        return meta

    def _padded_name(self, of: str) -> str:
        name = f"{of}{SUFFIX}"
        while name in self._taken:
            name = f"{name}_"
        self._taken.add(name)
        return name


def _lacking(size: Size) -> int:
    """By how much a size that is large enough to matter is padded."""
    return -size % PACK if isinstance(size, int) and size >= LEAST_TERMS else 0
