"""Images of half types with channels of zeros, so that the library reads whole vectors of channels.

The library's convolutions of channels-last images read 16 bytes of channels at a time, or pixels of four channels. It
copies other images and weights to memory with zeros between, at every call: 27 us of an H200 for 64 x 224 x 224 pixels
of three channels, and 7 to clear the memory. The kernel that turns the image writes the zeros at no cost, and weights
are prepared. A zero of the weight is multiplied with a zero of the image, so that every sum is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Node, Size
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.forms import conv_layout
from hipwright.engine.rewrite.node_writer import NodeWriter, Rewrite


def padded_channels(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with such images where that is chosen, what could be chosen).

    The choice is `pad:<convolution>`. It is the default in runs for NVIDIA GPUs, where the image is channels last.
    """
    if choices.get("library"):
        return graph, {}
    writer, made = NodeWriter(graph), dict[str, dict[str, str]]()

    def possible(node: Node) -> Rewrite | None:
        sizes = conv_layout.sizes_of(writer, node)
        found = conv_layout.filled(node, sizes) if sizes else None
        if found is None:
            return None
        lacking, turned = found
        usual = bool(choices.get(SPLIT)) and bool(choices.get(f"channels_last:{node.name}", turned))
        return usual, partial(_write, writer, made, node, lacking)

    return writer.rewritten("pad", possible, choices)


def _write(writer: NodeWriter, made: dict[str, dict[str, str]], node: Node, lacking: int) -> None:
    """The convolution with image and weight padded. made: {value: padded}, once for all convolutions that read it."""
    operands = list(node.args)
    for place in (0, 1):
        value: dict[str, Any] = operands[place]
        meta = writer.meta(value)
        assert meta is not None
        if value["node"] not in made:
            arguments = [value, [0, 0, 0, 0, 0, lacking], 0.0]
            shape = _with_channels(meta.shape, lacking)
            padded = writer.add(node, "aten.constant_pad_nd.default", arguments, shape, dtype=meta.dtype)
            made[value["node"]] = padded
        operands[place] = made[value["node"]]
    writer.nodes.append(msgspec.structs.replace(node, args=tuple(operands)))


def _with_channels(shape: Sequence[Size], more: int) -> list[Size]:
    channels = shape[1]
    assert isinstance(channels, int)
    return [shape[0], channels + more, *shape[2:]]


__all__ = ["padded_channels"]
