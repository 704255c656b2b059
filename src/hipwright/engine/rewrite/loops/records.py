"""A loop as one node of a graph: the graph of one step, what steps hand on, and what the loop gives."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.capture.graph import Graph, Meta, Node, Size

LOOP = "hip.loop"
"""The operator of a loop's node: `args[0]` lists the values that its body reads (as `body.given`), `kwargs["body"]` is
a `LoopBody`, and its outputs are those of `body.last` and then those of `body.collected`."""


@dataclass(frozen=True)
class LoopBody:
    """One step of a loop.

    graph: its inputs are what it reads from outside, under the names of `given`, and its outputs everything that
    anybody reads. step: the name that sizes of the graph have for the number of the step, from 1 to `steps`.
    carried: {input: the value that the next step finds there}: a value of the step or another carried input, which then
    comes later. last: values of the last step that are read afterwards.
    collected: values of which every step's is read afterwards, stacked along a new first dimension.
    """

    graph: Graph
    step: str
    steps: Size
    given: tuple[str, ...]
    carried: dict[str, str]
    last: tuple[str, ...]
    collected: tuple[str, ...]


def body_of(node: Node) -> LoopBody | None:
    """A loop's body; None for another node."""
    body: LoopBody | None = node.kwargs.get("body") if node.op == LOOP else None
    return body


def nodes_of(graph: Graph) -> list[Node]:
    """The nodes of a graph and of the loops in it, without the loops' own."""
    found: list[Node] = []
    for node in graph.nodes:
        body = body_of(node)
        found += [node] if body is None else nodes_of(body.graph)
    return found


def stacked_meta(meta: Meta, steps: Size) -> Meta:
    """The meta of the values of all steps, stacked along a new first dimension, row-major."""
    shape = (steps, *meta.shape)
    stride: list[int | str] = [1]
    for size in reversed(shape[1:]):
        before = stride[0]
        numbers = isinstance(size, int) and isinstance(before, int)
        stride.insert(0, size * before if numbers else f"({size})*({before})")  # type: ignore[operator]
    return Meta(dtype=meta.dtype, shape=shape, stride=tuple(stride))
