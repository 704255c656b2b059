"""A graph of outputs and gradients becomes two: forward, which also gives what is saved, and backward. Torch-free.

Saved is what backward reads of forward's values. An input and an output are saved by reference; what is cheap to
compute again from those (pointwise operators and views) is computed again, where what that needs is no larger; the rest
is stored. (Chen et al. 2016, "Training deep nets with sublinear memory cost", is the idea's source.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Input, Meta, Node, Symbol, references
from hipwright.engine.lower.operators import family
from hipwright.errors import BadInput

OUT = "out"  # the key of the outputs; every other one names what a gradient is of
_DEPTH = 16  # of what is computed again
_WORD = re.compile(r"[A-Za-z_]\w*")


def split(joint: Graph, tangents: Iterable[str]) -> tuple[Graph, Graph]:
    """(forward, backward) of a graph that returns {"out": outputs, of: gradient, ...}.

    tangents: the parameters that hold the outputs' gradients, one for each output tensor in order.
    backward's parameters are `grads` and `saved`; it returns the dict of gradients.
    """
    return _Split(joint, list(tangents)).graphs()


@dataclass
class _Split:
    joint: Graph
    tangents: list[str]
    saved: list[str] = field(default_factory=list)  # values, in the order in which forward returns them
    again: set[str] = field(default_factory=set)  # nodes that backward computes once more

    def __post_init__(self) -> None:
        parts = self.joint.output.get("map", []) if isinstance(self.joint.output, dict) else []
        if not any(key == OUT for key, _ in parts):
            raise BadInput(f"the graph does not return a dict with {OUT!r} and gradients")
        self.outputs = next(value for key, value in parts if key == OUT)
        self.grads = {"map": [[key, value] for key, value in parts if key != OUT]}
        self.nodes = {node.name: node for node in self.joint.nodes}
        self.inputs = {tensor.name: tensor for tensor in self.joint.inputs}
        self.late = self._late()
        self.returned = set(references(self.outputs))

    def graphs(self) -> tuple[Graph, Graph]:
        """Decide what is saved, then cut."""
        needed = self._reached(references(self.grads), self.late)
        for name in needed:
            if name in self.late:
                for argument in _arguments(self.nodes[name]):
                    self._provide(argument)
        for name in references(self.grads):
            self._provide(name)
        backward = [n for n in self.joint.nodes if n.name in self.again or (n.name in needed and n.name in self.late)]
        symbols, extra = self._symbols(backward)
        return self._forward(extra), self._backward(backward, symbols)

    # ------------------------------------------------------------ what depends on what

    def _late(self) -> set[str]:
        """Values that depend on the outputs' gradients."""
        late = {t.name for t in self.joint.inputs if t.access in self.tangents}
        for node in self.joint.nodes:
            if any(name in late for name in _arguments(node)):
                late.add(node.name)
        return late

    def _reached(self, roots: Iterable[str], within: set[str] | None = None) -> set[str]:
        """Nodes behind some values; with `within`, only through those."""
        found: set[str] = set()
        left = list(roots)
        while left:
            name = left.pop()
            if name in found or name not in self.nodes or (within is not None and name not in within):
                continue
            found.add(name)
            left += _arguments(self.nodes[name])
        return found

    def _provide(self, name: str) -> None:
        """Make a value of forward's available to backward."""
        if name in self.late or name in self.saved or name in self.again:
            return
        tensor = self.inputs.get(name)
        if tensor is not None:
            if tensor.kind == "input" or self._mutated(tensor):
                self.saved.append(name)
            return
        if name not in self.returned and self._cheap(name, 0):
            new = {leaf for leaf in self._leaves(name) if not self._free(leaf)}
            if sum(map(self._elements, new)) <= self._elements(name):
                self.again.add(name)
                for argument in _arguments(self.nodes[name]):
                    self._provide(argument)
                return
        self.saved.append(name)

    def _mutated(self, tensor: Input) -> bool:
        """A buffer that forward overwrites: backward wants what it was."""
        return any(m.access == tensor.access for m in self.joint.mutations)

    def _cheap(self, name: str, depth: int) -> bool:
        node = self.nodes.get(name)
        if node is None:
            return False
        return depth < _DEPTH and family(node.op) in ("pointwise", "view")

    def _leaves(self, name: str, depth: int = 0) -> Iterator[str]:
        """What would have to be there to compute a value again."""
        if name in self.returned or not self._cheap(name, depth):
            yield name
            return
        for argument in _arguments(self.nodes[name]):
            yield from self._leaves(argument, depth + 1)

    def _elements(self, name: str) -> int:
        """Number of elements when captured."""
        scope = {"min": min, "max": max, **{s.name: s.hint for s in self.joint.symbols}}
        return math.prod(int(eval(str(size), {"__builtins__": {}}, scope)) for size in self._meta(name).shape)

    def _free(self, name: str) -> bool:
        return name in self.inputs or name in self.returned or name in self.saved

    # ------------------------------------------------------------ the two graphs

    def _symbols(self, backward: list[Node]) -> tuple[list[Symbol], list[str]]:
        """(backward's sizes with where they are read, those that forward has to save as numbers)."""
        metas: list[tuple[str, Meta]] = [(access, self._meta(name)) for name, access in self._accesses().items()]
        known = {s.name: s for s in self.joint.symbols}
        used = {w for node in backward for text in _sizes(node) for w in _WORD.findall(text)}
        used |= {w for _, meta in metas for s in (*meta.shape, *meta.stride) for w in _WORD.findall(str(s))}
        symbols: list[Symbol] = []
        extra: list[str] = []
        for name in sorted(used & set(known)):
            found = (f"{access}.shape[{k}]" for access, m in metas for k, size in enumerate(m.shape) if size == name)
            access = next(found, None)
            if access is None:
                access = f"saved[{len(self.saved) + len(extra)}]"
                extra.append(name)
            symbols.append(msgspec.structs.replace(known[name], access=access))
        return symbols, extra

    def _accesses(self) -> dict[str, str]:
        """How backward reads the outputs' gradients and what was saved."""
        spelled = list(_spelled(self.outputs, "grads"))
        names = {t.access: t.name for t in self.joint.inputs}
        found = {names[t]: access for t, access in zip(self.tangents, spelled, strict=True) if t in names}
        return found | {name: f"saved[{k}]" for k, name in enumerate(self.saved)}

    def _meta(self, name: str) -> Meta:
        if name in self.inputs:
            return self.inputs[name].meta
        meta = self.nodes[name].outs[0]
        assert meta is not None
        return meta

    def _forward(self, extra: list[str]) -> Graph:
        roots = [
            *references(self.outputs),
            *(s for s in self.saved if s in self.nodes),
            *(m.node for m in self.joint.mutations),
        ]
        kept = self._reached(roots)
        saved: list[Any] = [self._kept(name) for name in self.saved]
        saved += [{"size": name} for name in extra]
        return msgspec.structs.replace(
            self.joint,
            parameters=tuple(p for p in self.joint.parameters if p not in self.tangents),
            inputs=tuple(t for t in self.joint.inputs if t.access not in self.tangents),
            nodes=tuple(node for node in self.joint.nodes if node.name in kept),
            output={"tuple": [self.outputs, {"tuple": saved}]},
            symbols=tuple(s for s in self.joint.symbols if not self._of_tangent(s.access)),
            guards=tuple(guard for guard in self.joint.guards if not self._of_tangent(guard)),
        )

    def _of_tangent(self, text: str) -> bool:
        return any(word in self.tangents for word in _WORD.findall(text))

    def _kept(self, name: str) -> dict[str, str]:
        """A saved value in forward's return: an input as it is, anything else computed."""
        tensor = self.inputs.get(name)
        return {"text": tensor.access} if tensor is not None and tensor.kind == "input" else {"node": name}

    def _backward(self, nodes: list[Node], symbols: list[Symbol]) -> Graph:
        read = {name for node in nodes for name in _arguments(node)} | set(references(self.grads))
        inputs = [
            Input(name=name, kind="input", access=access, meta=self._meta(name))
            for name, access in self._accesses().items()
        ]
        taken = {tensor.name for tensor in inputs}
        inputs += [t for t in self.joint.inputs if t.name in read and t.name not in taken]
        return Graph(
            parameters=("grads", "saved"),
            inputs=tuple(inputs),
            nodes=tuple(nodes),
            output=self.grads,
            symbols=tuple(symbols),
            dynamic=bool(symbols),
        )


def _arguments(node: Node) -> list[str]:
    return list(references([*node.args, *node.kwargs.values()]))


def _sizes(node: Node) -> Iterator[str]:
    """The sizes that an operator's arguments and results mention."""
    yield from _size_texts([*node.args, *node.kwargs.values()])
    for meta in node.outs:
        if meta is not None:
            yield from (str(s) for s in (*meta.shape, *meta.stride))


def _size_texts(argument: Any) -> Iterator[str]:
    if isinstance(argument, Mapping):
        if "size" in argument:
            yield str(argument["size"])
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from _size_texts(item)


def _spelled(value: Any, text: str) -> Iterator[str]:
    """How each tensor of the outputs' nesting is read from something nested alike."""
    if isinstance(value, dict) and "map" in value:
        for key, item in value["map"]:
            yield from _spelled(item, f"{text}[{key!r}]")
    elif isinstance(value, dict) and "tuple" in value:
        for k, item in enumerate(value["tuple"]):
            yield from _spelled(item, f"{text}[{k}]")
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from _spelled(item, f"{text}[{k}]")
    elif isinstance(value, dict) and "node" in value:
        yield text
