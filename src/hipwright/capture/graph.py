"""The captured graph: ATen calls on typed, shaped values, as plain JSON (no torch).

A *size* is an int or a Python expression over the graph's symbols (`"x_0*2"`). An argument is None, a bool, int,
float or str, a list of arguments, or one of {"node": name}, {"size": expression}, {"dtype": name}, {"float": "inf"},
{"complex": "(2+3j)"}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from hipwright.records import Record

Size = int | str


class Meta(Record, frozen=True, kw_only=True):
    """One tensor value: torch dtype name, shape and strides (in elements) in sizes."""

    dtype: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...] = ()


class Input(Record, frozen=True, kw_only=True):
    """A tensor the graph reads. access: how the plan spells it (`x`, `xs[0]`, `self.conv.weight`)."""

    name: str
    kind: Literal["input", "param", "buffer", "const"]
    access: str
    meta: Meta
    value: Any = None  # the nested list of a small constant, as an argument


class Node(Record, frozen=True, kw_only=True):
    """One operator call. outs has one Meta per output (None for an unused or absent one). listed: one output comes in a
    list."""

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies defaults
    outs: tuple[Meta | None, ...]
    module: str = ""
    listed: bool = False


class Symbol(Record, frozen=True, kw_only=True):
    """A size that varies between calls: how the plan reads it, and its value when captured."""

    name: str
    access: str
    hint: int


class Mutation(Record, frozen=True, kw_only=True):
    """A module buffer, or an input, that the call overwrites with a value of the graph. access: as the input's."""

    access: str
    node: str


class Graph(Record, frozen=True, kw_only=True):
    """A captured module. parameters: the forward's argument names; output: the outputs' nesting as an argument."""

    parameters: tuple[str, ...]
    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    output: Any
    symbols: tuple[Symbol, ...] = ()
    guards: tuple[str, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    dynamic: bool = True
    again: Graph | None = None
    """The same module captured at another length of what its loops in Python run over; None where that was not."""
    positions: dict[str, int] = msgspec.field(default_factory=dict)
    """By the path of an item with a number for a name that is not its place among its siblings: that place."""


def references(arg: Any) -> Iterator[str]:
    """The names of the nodes an argument mentions, in order."""
    if isinstance(arg, dict):
        if "node" in arg:
            yield arg["node"]
        elif "map" in arg:
            for _, item in arg["map"]:
                yield from references(item)
        elif "tuple" in arg:
            yield from references(arg["tuple"])
    elif isinstance(arg, (list, tuple)):
        for item in arg:
            yield from references(item)


def short(op: str) -> str:
    """`aten.add.Tensor` -> `add`."""
    return op.split(".")[1] if op.startswith("aten.") else op


def users(graph: Graph) -> dict[str, list[Node]]:
    """The nodes that read each value, in order."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(references([*node.args, *node.kwargs.values()])):
            found.setdefault(name, []).append(node)
    return found


def readers(graph: Graph, name: str) -> Sequence[Node]:
    """The nodes that read a value, in order, by a table that is kept for the latest graphs."""
    return _users_of(_Itself(graph)).get(name, ())


class _Itself:
    """A graph as a key that is equal to itself alone: comparing a thousand nodes takes longer than the table."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and other.graph is self.graph

    def __hash__(self) -> int:
        return id(self.graph)


@lru_cache(maxsize=16)
def _users_of(key: _Itself) -> dict[str, list[Node]]:
    return users(key.graph)


def returned(graph: Graph) -> list[str]:
    """The values that leave the graph: outputs, and what buffers and inputs are set to."""
    return [*references(graph.output), *(m.node for m in graph.mutations)]


def plain(name: str) -> str:
    """A node's name as people say it."""
    return re.sub(r"^_?native_(batch|layer|group)_norm(_legit)?(_functional|_no_training)?", r"\1_norm", name)


def several(node: Node) -> bool:
    """Is the result a tuple, of one tensor too?"""
    return len(node.outs) != 1 or node.listed
