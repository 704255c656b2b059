"""The number of steps of a loop as a size that may change, from captures of one module at two lengths.

Tracing fixes the length of what a loop in Python runs over. Where the module captured at another length gives the same
graph but for numbers that follow the length, the length is a size like others: the program serves every length, and is
verified at small ones. A number that follows it otherwise, or a constant that differs, leaves the length fixed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Input, Meta, Mutation, Node, Size, Symbol
from hipwright.engine.rewrite.loops.records import LoopBody, body_of
from hipwright.engine.rewrite.steps import WHOLE

_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_WORD = re.compile(r"[A-Za-z_]\w*")
_MOST_TIMES, _MOST_OFFSET = 4, 16


class Differs(Exception):
    """The two graphs differ in more than the length."""


def freed(first: Graph, other: Graph) -> Graph | None:
    """The first graph with the length as a symbol; None where the two differ in anything but a length of the inputs."""
    try:
        lengths, symbol = _length(first, other)
        return _Both(*lengths, symbol).graph(first, other)
    except Differs:
        return None


def _length(first: Graph, other: Graph) -> tuple[tuple[int, int], Symbol]:
    """(the length in each graph, its symbol)."""
    found: dict[tuple[int, int], tuple[str, int]] = {}
    for a, b in _pairs(first.inputs, other.inputs):
        for dim, (n, m) in enumerate(_pairs(a.meta.shape, b.meta.shape)):
            if n != m:
                if a.kind != "input" or not isinstance(n, int) or not isinstance(m, int):
                    raise Differs
                found.setdefault((n, m), (a.access, dim))
    if len(found) != 1:
        raise Differs
    ((lengths, (access, dim)),) = found.items()
    taken = {n.name for n in first.nodes} | {i.name for i in first.inputs} | {s.name for s in first.symbols}
    name = f"{access}_{dim}" if access.isidentifier() else f"length_{dim}"
    while name in taken | set(first.parameters):
        name += "_"
    return lengths, Symbol(name=name, access=f"{access}.shape[{dim}]", hint=lengths[0])


def _pairs(a: Sequence[Any], b: Sequence[Any]) -> Sequence[tuple[Any, Any]]:
    if len(a) != len(b):
        raise Differs
    return list(zip(a, b, strict=True))


@dataclass
class _Both:
    """Two graphs read side by side. a, b: the lengths; names: of the second graph's values in the first."""

    a: int
    b: int
    symbol: Symbol
    names: dict[str, str] = field(default_factory=dict)
    least: dict[str, None] = field(default_factory=dict)  # what must hold of sizes for places to exist

    def graph(self, first: Graph, other: Graph) -> Graph:
        """The graph for every length. Raises Differs."""
        self._same(first.parameters, other.parameters)
        self._same([(s.name, s.access) for s in first.symbols], [(s.name, s.access) for s in other.symbols])
        made = self._inner(first, other)
        guards = [self.text(a, b) for a, b in _pairs(first.guards, other.guards)]
        known = {f"{self.symbol.access} == ({self.symbol.name})"}
        mutations = [
            Mutation(access=self._same(a.access, b.access), node=self._same(a.node, self.names.get(b.node)))
            for a, b in _pairs(first.mutations, other.mutations)
        ]
        return msgspec.structs.replace(
            made,
            symbols=(*first.symbols, self.symbol),
            guards=(*(g for g in guards if g not in known), *self.least),
            mutations=tuple(mutations),
            dynamic=True,
        )

    def _inner(self, first: Graph, other: Graph) -> Graph:
        """Inputs, nodes and outputs."""
        inputs = tuple(self._input(a, b) for a, b in _pairs(first.inputs, other.inputs))
        nodes = tuple(self._node(a, b) for a, b in _pairs(first.nodes, other.nodes))
        found = msgspec.structs.replace(first, inputs=inputs, nodes=nodes, output=self.of(first.output, other.output))
        self._places(found)
        return found

    def _input(self, a: Input, b: Input) -> Input:
        self._same((a.kind, a.value), (b.kind, b.value))
        self.names[b.name] = a.name
        return msgspec.structs.replace(a, meta=self.meta(a.meta, b.meta))

    def _node(self, a: Node, b: Node) -> Node:
        self._same((a.op, sorted(a.kwargs)), (b.op, sorted(b.kwargs)))
        outs = tuple(self._optional(m, n) for m, n in _pairs(a.outs, b.outs))
        args = tuple(self.of(x, y) for x, y in _pairs(a.args, b.args))
        kwargs = {k: self.of(v, b.kwargs[k]) for k, v in a.kwargs.items()}
        self.names[b.name] = a.name
        return msgspec.structs.replace(a, args=args, kwargs=kwargs, outs=outs)

    def _body(self, a: LoopBody, b: LoopBody) -> LoopBody:
        outer, self.names = self.names, {b.step: a.step}
        graph = self._inner(a.graph, b.graph)
        named = [[self.names.get(n) for n in part] for part in (b.given, b.last, b.collected, b.carried.values())]
        self._same(named, [list(part) for part in (a.given, a.last, a.collected, a.carried.values())])
        self.names = outer
        steps = self.number(a.steps, b.steps)
        if not isinstance(steps, int):
            self.least[f"{steps} >= 1"] = None
        symbols = (*(s for s in a.graph.symbols if s.name != a.step), self.symbol, a.graph.symbols[-1])
        graph = msgspec.structs.replace(graph, symbols=symbols, dynamic=True)
        return LoopBody(graph, a.step, steps, a.given, a.carried, a.last, a.collected)

    # ------------------------------------------------------------ values

    def of(self, a: Any, b: Any) -> Any:
        """An argument or a part of the output."""
        if isinstance(a, LoopBody) and isinstance(b, LoopBody):
            return self._body(a, b)
        if isinstance(a, dict) and isinstance(b, dict):
            self._same(sorted(a), sorted(b))
            if "node" in a:
                self._same(a["node"], self.names.get(b["node"]))
                return a
            if "size" in a:
                size = self.size(a["size"], b["size"])
                return size if isinstance(size, int) else {"size": size}
            return {k: self.of(v, b[k]) for k, v in a.items()}
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            return type(a)(self.of(x, y) for x, y in _pairs(a, b))
        if type(a) is int and type(b) is int and a != b:
            size = self.number(a, b)
            return size if isinstance(size, int) else {"size": size}
        return self._same(a, b)

    def meta(self, a: Meta, b: Meta) -> Meta:
        """A value's dtype, shape and strides."""
        self._same(a.dtype, b.dtype)
        shape = tuple(self.size(x, y) for x, y in _pairs(a.shape, b.shape))
        stride = tuple(self.size(x, y, stride=True) for x, y in _pairs(a.stride, b.stride))
        return Meta(dtype=a.dtype, shape=shape, stride=stride)

    def _optional(self, a: Meta | None, b: Meta | None) -> Meta | None:
        if a is None or b is None:
            return self._same(a, b)  # type: ignore[no-any-return]
        return self.meta(a, b)

    def size(self, a: Size, b: Size, *, stride: bool = False) -> Size:
        """A size."""
        if isinstance(a, int) and isinstance(b, int):
            return self.number(a, b, stride=stride)
        if isinstance(a, str) and isinstance(b, str):
            return self.text(a, b, stride=stride)
        raise Differs

    def number(self, a: Size, b: Size, *, stride: bool = False) -> Size:
        """The size of two numbers: that number, or times * (length + a few), or a few times the length and a few more.

        A product of two lengths is none of these.
        """
        if not isinstance(a, int) or not isinstance(b, int):
            return self.size(a, b)
        if a == b:
            return a
        times, rest = divmod(a - b, self.a - self.b)
        offset = a - times * self.a
        small = abs(times) <= _MOST_TIMES and abs(offset) <= _MOST_OFFSET
        few = 0 < times != self.a + self.b and offset % times == 0 and abs(offset // times) <= _MOST_OFFSET
        if rest or not (stride or small or few):
            raise Differs
        text = self.symbol.name if times == 1 else f"{self.symbol.name}*{times}"
        return text if offset == 0 else f"{text} {'+' if offset > 0 else '-'} {abs(offset)}"

    def text(self, a: str, b: str, *, stride: bool = False) -> str:
        """An expression or a guard whose numbers may follow the length."""
        b = _WORD.sub(lambda found: self.names.get(found[0], found[0]), b)
        numbers = [(int(x), int(y)) for x, y in _pairs(_NUMBER.findall(a), _NUMBER.findall(b))]
        self._same(_NUMBER.split(a), _NUMBER.split(b))
        sizes = iter([x if x == y else f"({self.number(x, y, stride=stride)})" for x, y in numbers])
        return _NUMBER.sub(lambda found: str(next(sizes)), a)

    def _same(self, a: Any, b: Any) -> Any:
        if a != b and not (a is None and b is None):
            raise Differs
        return a

    # ------------------------------------------------------------ places

    def _places(self, graph: Graph) -> None:
        """Notes how long dimensions that may change must be for the places that views take of them."""
        known: dict[str, Meta | None] = {i.name: i.meta for i in graph.inputs}
        known |= {n.name: n.outs[0] if n.outs else None for n in graph.nodes}
        for node in graph.nodes:
            if node.op in ("aten.select.int", "aten.slice.Tensor", "aten.narrow.default") and body_of(node) is None:
                meta = known.get(node.args[0]["node"])
                dim = node.args[1] if len(node.args) > 1 else 0
                size = meta.shape[dim] if meta is not None else 0
                if isinstance(size, str) and self.symbol.name in _WORD.findall(size):
                    least = _reaches(node)
                    if least:
                        self.least[f"{size} >= {least}"] = None


def _reaches(node: Node) -> int:
    """The least size of a dimension of which a view takes places that are numbers."""
    if node.op == "aten.select.int":
        at = node.args[2]
        return (at + 1 if at >= 0 else -at) if isinstance(at, int) else 0
    numbers = [n for n in node.args[2:4] if isinstance(n, int) and abs(n) < WHOLE]
    if node.op == "aten.narrow.default":
        return sum(numbers)
    return max((abs(n) for n in numbers), default=0)
