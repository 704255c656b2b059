"""Concatenations that grow: each of a dense block's layers joins all results before it, and one more.

A kernel that reads through a concatenation of n tensors has n pointers and n - 1 conditions, so that a block's text
grows with the square of its layers. A concatenation of many pieces takes an earlier one that begins it in place of its
first pieces: every `STEP`-th is stored and read again, and the others are read through as before.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Node, short

STEP = 3
"""Every so many pieces a concatenation is one that later ones begin with."""


def growing(graph: Graph) -> Graph:
    """The graph with concatenations that begin with an earlier one."""
    known: dict[tuple[Any, ...], str] = {}
    nodes = [_shortened(node, known) if short(node.op) == "cat" else node for node in graph.nodes]
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _shortened(node: Node, known: dict[tuple[Any, ...], str]) -> Node:
    """The node with an earlier concatenation of its first pieces. known: those so far by what they join."""
    pieces, rest = node.args[0], node.args[1:]
    dtype = node.outs[0].dtype if node.outs and node.outs[0] is not None else ""
    begin = (len(pieces) - 1) // STEP * STEP
    what = json.dumps([rest, node.kwargs, dtype], sort_keys=True)
    keys = [json.dumps(piece, sort_keys=True) for piece in pieces]
    known.setdefault((what, *keys), node.name)
    while begin and (what, *keys[:begin]) not in known:
        begin -= STEP
    if not begin:
        return node
    first = {"node": known[(what, *keys[:begin])]}
    return msgspec.structs.replace(node, args=([first, *pieces[begin:]], *rest))
