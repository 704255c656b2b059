"""Convolutions of one tap as products of rows of channels, among images that other convolutions turn channels last.

Such a convolution of half types is a product of a weight and each position's channels. The library computes it as
images lie, but then what its neighbours leave channels last is permuted before and after; where planes are no multiple
of 8 positions, its products read one number at a time, too: 96 channels of 64 x 65 x 65 to 96 took an H200 133 us, the
product of rows 17. A network's images of one region (connected by pointwise operators, concatenations of channels and
pooling) are all channels last where a larger convolution is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hipwright.capture.graph import Graph, Node, references, returned, short
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.lower.conv import TO_CHANNELS_FIRST, TO_CHANNELS_LAST
from hipwright.engine.lower.operators import family
from hipwright.engine.rewrite.forms import conv_layout
from hipwright.engine.rewrite.node_writer import NodeWriter, Rewrite

NORMS = {"batch_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"}
NORMS |= {"_native_batch_norm_legit_no_training", "_batch_norm_with_update_functional"}
POOLS = {"max_pool2d", "avg_pool2d", "max_pool2d_with_indices"}
TRANSPARENT = NORMS | POOLS | {"dropout", "clone", "contiguous", "_to_copy", "detach", "alias"}
"""Operators whose result is as fast to compute channels last, of an image that lies so."""
ENDS = {"adaptive_avg_pool2d", "adaptive_max_pool2d", "mean", "amax"}
"""Operators that make little of an image, in whatever order it lies."""


@dataclass
class _Region:
    """Images that lie alike. last: a convolution turns them; first: something needs them as they are."""

    members: set[str] = field(default_factory=set)
    last: bool = False
    first: bool = False


def last_products(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such convolutions as products where that is chosen, what could be chosen).

    The choice is `last:<convolution>`; the default is that of the region of its image and that of its result.
    """
    if choices.get("library"):
        return graph, {}
    writer = NodeWriter(graph)
    found = [node for node in graph.nodes if _is_possible(writer, node)]
    if not found:
        return graph, {}
    wanted = _wanted(writer, graph, found)

    def possible(node: Node) -> Rewrite | None:
        return (node.name in wanted, partial(_write, writer, node)) if node in found else None

    return writer.rewritten("last", possible, choices)


def _is_possible(writer: NodeWriter, node: Node) -> bool:
    """Whether this is a convolution of half types of one tap at each position."""
    if node.op != "aten.conv2d.default" or node.kwargs or not conv_layout.is_candidate(node):
        return False
    x, weight = writer.meta(node.args[0]), writer.meta(node.args[1])
    out = node.outs[0]
    if x is None or weight is None or out is None or len(x.shape) != 4 or x.dtype not in HALVES:
        return False
    numbers = all(isinstance(size, int) for size in weight.shape)
    same = {weight.dtype, out.dtype} == {x.dtype}
    if not numbers or not same or not conv_layout.is_product(node, [int(s) for s in weight.shape[2:]]):
        return False
    inside, outside = int(weight.shape[1]), int(weight.shape[0])
    return inside % conv_layout.PACK == 0 and min(inside, outside) > 1


def _turns(writer: NodeWriter, node: Node) -> bool:
    """Whether a larger convolution turns its image and its result by default."""
    sizes = conv_layout.sizes_of(writer, node)
    return sizes is not None and sizes.dtype in HALVES and bool(conv_layout.usual(node, sizes))


def _wanted(writer: NodeWriter, graph: Graph, found: list[Node]) -> set[str]:
    """The products whose image or result lies channels last, and whose other side is turned at no greater cost.

    An image is turned once for all products that read it.
    """
    regions = _regions(writer, graph, {node.name for node in found})
    wanted, grown = set[str](), True
    while grown:
        grown = False
        for node in (n for n in found if n.name not in wanted):
            image, result = (regions[name] for name in (node.args[0]["node"], node.name))
            inside, outside = _channels(writer, node)
            beside = [n for n in found if n.args[0] == node.args[0] and regions[n.name].last]
            made = sum(_channels(writer, n)[1] for n in beside)
            turned = (inside if image.last else 0) or made
            cost = max(
                (size for side, size in ((image, inside), (result, outside)) if side.first and not side.last), default=0
            )
            if turned and turned >= cost:
                wanted.add(node.name)
                grown = True
                image.last = image.last or not image.first or bool(made)
                result.last = result.last or not result.first
    return wanted


def _channels(writer: NodeWriter, node: Node) -> tuple[int, int]:
    """A product's inputs and outputs."""
    weight = writer.meta(node.args[1])
    assert weight is not None
    return int(weight.shape[1]), int(weight.shape[0])


def _regions(writer: NodeWriter, graph: Graph, products: set[str]) -> dict[str, _Region]:
    """The region of every value."""
    region = {name: _Region({name}) for name in [*(i.name for i in graph.inputs), *(n.name for n in graph.nodes)]}

    def join(a: str, b: str) -> None:
        one, other = region[a], region[b]
        if one is not other:
            one.members |= other.members
            one.last, one.first = one.last or other.last, one.first or other.first
            for name in other.members:
                region[name] = one

    for node in graph.nodes:
        images = [name for name in references([*node.args, *node.kwargs.values()]) if _is_image(writer, name)]
        if keeps_layout(node):
            for name in images if _is_image(writer, node.name) or short(node.op) in NORMS else ():
                join(name, node.name)
        elif _turns(writer, node):
            for name in (node.args[0]["node"], node.name):
                region[name].last = True
        elif node.name not in products and short(node.op) not in ENDS:
            for name in (*images, node.name):
                region[name].first = True
    for name in [*(i.name for i in graph.inputs if i.kind == "input"), *returned(graph)]:
        region[name].first = True
    return region


def _is_image(writer: NodeWriter, name: str) -> bool:
    """Whether a value has planes of several positions."""
    meta = writer.known.get(name)
    return meta is not None and len(meta.shape) == 4 and meta.shape[2:] != (1, 1)


def keeps_layout(node: Node) -> bool:
    """Whether an operator computes channels-last images of such as fast as others."""
    kind = short(node.op)
    if kind == "cat":
        return (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) in (1, -3)
    return kind in TRANSPARENT or node.op == "getitem" or family(node.op) == "pointwise"


def _write(writer: NodeWriter, node: Node) -> None:
    """The product of the image's positions as rows, and the weight."""
    x, weight, out = writer.meta(node.args[0]), writer.meta(node.args[1]), node.outs[0]
    assert x is not None and weight is not None and out is not None
    rows = [x.shape[k] for k in TO_CHANNELS_LAST]
    turned = writer.add(node, "aten.permute.default", [node.args[0], TO_CHANNELS_LAST], rows, dtype=x.dtype)
    matrix = writer.view(node, node.args[1], weight.shape[:2], dtype=weight.dtype)
    bias: list[Any] = [node.args[2]] if len(node.args) > 2 and node.args[2] is not None else []
    made = [out.shape[k] for k in TO_CHANNELS_LAST]
    product = writer.add(node, "aten.linear.default", [turned, matrix, *bias], made, dtype=out.dtype)
    writer.add(node, "aten.permute.default", [product, TO_CHANNELS_FIRST], out.shape, dtype=out.dtype, last=True)


__all__ = ["keeps_layout", "last_products"]
