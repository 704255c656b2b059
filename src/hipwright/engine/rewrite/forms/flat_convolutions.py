"""Convolutions of one dimension in half types as those of images of one row, which the library reads channels last.

It permutes an image [n, c, l] before and after the convolution, as it does [n, c, h, w]; what the engine's kernels do
in its place they do for images (partition/channels_last.py). The library itself computes one as the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hipwright.capture.graph import Graph, Node
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.node_writer import PACK, NodeWriter, Rewrite

LEAST_CHANNELS, LEAST_BYTES = 16, 1 << 24
"""Channels that fill a matrix instruction; bytes of input and result from which the permutations take longer than
launches. Of transposed 5 taps of 16 channels to 16, 134 MB, they took an H200 210 us, the convolution 183; of 3 taps of
32 to 64, 101 MB, 102 and 36; of transposed 2 of 16 to 64, 42 MB, 48 and 21.
"""
_FORMS = {
    "aten.conv1d.default": ("aten.conv2d.default", (3, 4, 5)),
    "aten.conv_transpose1d.default": ("aten.conv_transpose2d.input", (3, 4, 5, 7)),
}
"""Operators: those of images, and the places of the arguments that have a number for each dimension."""
_OF_ROWS = {("aten.conv1d.default", 4): 0, ("aten.conv_transpose1d.default", 4): 0}
_OF_ROWS |= {("aten.conv_transpose1d.default", 5): 0}
"""Numbers of the dimension of one row, by operator and place, where they are not 1: paddings."""


def flat_convolutions(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such convolutions as those of images where that is chosen, what could be chosen).

    The choice is `image:<convolution>`. By default large ones are such in runs for NVIDIA GPUs.
    """
    if choices.get("library"):
        return graph, {}
    writer = NodeWriter(graph)

    def possible(node: Node) -> Rewrite | None:
        if not _is_possible(writer, node):
            return None
        return bool(choices.get(SPLIT)) and _is_large(writer, node), partial(_write, writer, node)

    return writer.rewritten("image", possible, choices)


def _is_possible(writer: NodeWriter, node: Node) -> bool:
    """Whether this is a convolution of half types that the library reads channels last."""
    if node.op not in _FORMS or node.kwargs or not node.outs:
        return False
    x, weight, out = writer.meta(node.args[0]), writer.meta(node.args[1]), node.outs[0]
    if x is None or weight is None or out is None or len(x.shape) != 3:
        return False
    groups = node.args[6] if len(node.args) > 6 else 1
    if x.dtype not in HALVES or {weight.dtype, out.dtype} != {x.dtype} or groups != 1:
        return False
    places = [node.args[k] for k in _FORMS[node.op][1] if k < len(node.args)]
    if not all(value in (None, []) or _is_number(value) for value in places):
        return False
    outside, inside, taps = weight.shape
    channels = [c for c in (outside, inside) if isinstance(c, int) and c >= LEAST_CHANNELS and c % PACK == 0]
    return len(channels) == 2 and isinstance(taps, int) and taps > 0 and not _is_product(node, taps)


def _is_number(value: Any) -> bool:
    """Whether an argument is one number, in a list or not."""
    listed: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    return len(listed) == 1 and isinstance(listed[0], int)


def _is_product(node: Node, taps: int) -> bool:
    """Whether each result is a product of one position's channels, which the library computes as images lie."""
    stride, padding = [*node.args[3:5], None, None][:2]
    return taps == 1 and stride in (None, [], 1, [1]) and padding in (None, [], 0, [0])


def _is_large(writer: NodeWriter, node: Node) -> bool:
    """Whether the permutations are worth kernels of their own."""
    x, out = writer.meta(node.args[0]), node.outs[0]
    assert x is not None and out is not None
    return 2 * (writer.hints(x.shape) + writer.hints(out.shape)) >= LEAST_BYTES


def _write(writer: NodeWriter, node: Node) -> None:
    """The convolution of an image of one row."""
    op, places = _FORMS[node.op]
    args, out = list(node.args), node.outs[0]
    assert out is not None
    for k in (0, 1):
        meta = writer.meta(args[k])
        assert meta is not None
        args[k] = writer.view(node, args[k], [*meta.shape[:2], 1, meta.shape[2]], dtype=meta.dtype)
    for k in (k for k in places if k < len(args)):
        usual = 0 if (node.op, k) in _OF_ROWS else 1
        listed = args[k] if isinstance(args[k], (list, tuple)) else [] if args[k] is None else [args[k]]
        args[k] = [usual, *(listed or [usual])]
    made = writer.add(node, op, args, [*out.shape[:2], 1, out.shape[2]], dtype=out.dtype)
    writer.view(node, made, out.shape, dtype=out.dtype, last=True)


__all__ = ["flat_convolutions"]
