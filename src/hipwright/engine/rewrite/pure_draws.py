"""Draws that read nothing: what the module computes with a mask or with noise fuses into kernels.

`native_dropout(x)` becomes the mask that it draws for memory of x's form, and products with it; `rand_like(x)` and its
kin take memory of that form in place of x. The operator stays the module's own, so it takes the same numbers from the
generator, in the same order and on every device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, short
from hipwright.capture.random_operators import form_of, row_major
from hipwright.engine.knobs import Choice, Value
from hipwright.engine.rewrite.pinned_sizes import metas

MASK, WHOLE = "mask", "library"


def pure_draws(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """The graph with draws apart from the values, and the choices offered: dropout as a mask or as one library call."""
    if choices.get("library"):
        return graph, {}
    known = metas(graph)
    nodes: list[Node] = []
    offered: dict[str, Choice] = {}
    masked: dict[str, Node] = {}
    for node in graph.nodes:
        form = known.get(form_of(node))
        if node.op == "getitem" and node.args[0]["node"] in masked:
            nodes += _of_dropout(node, masked[node.args[0]["node"]])
            continue
        if form is None:
            nodes.append(node)
            continue
        if short(node.op) == "native_dropout":
            key = f"draw:{node.name}"
            offered[key] = Choice(options=(MASK, WHOLE), default=MASK)
            if choices.get(key, MASK) == WHOLE:
                nodes.append(node)
                continue
            masked[node.name] = node
        memory = _memory(f"{node.name}_form", form, graph)
        nodes += [memory, msgspec.structs.replace(node, args=({"node": memory.name}, *node.args[1:]))]
        if node.name in masked:
            mask = node.outs[1]
            nodes.append(Node(name=f"{node.name}_mask", op="getitem", args=({"node": node.name}, 1), outs=(mask,)))
    return msgspec.structs.replace(graph, nodes=tuple(nodes)), offered


def _memory(name: str, form: Meta, graph: Graph) -> Node:
    """Memory of a tensor's form, whose contents are not defined."""
    sizes: Any = [_size(s) for s in form.shape]
    dtype = {"dtype": {"dtype": form.dtype}}
    if row_major(form, graph):
        return Node(name=name, op="aten.empty.memory_format", args=(sizes,), kwargs=dtype, outs=(form,))
    strides: Any = [_size(s) for s in form.stride]
    return Node(name=name, op="aten.empty_strided.default", args=(sizes, strides), kwargs=dtype, outs=(form,))


def _size(size: int | str) -> Any:
    return size if isinstance(size, int) else {"size": size}


def _of_dropout(node: Node, dropout: Node) -> list[Node]:
    """An output of a dropout by its mask: the values that are kept, scaled by 1 / (1 - p), or the mask itself."""
    mask: Any = {"node": f"{dropout.name}_mask"}
    if node.args[1] == 1:
        return [msgspec.structs.replace(node, op="aten.alias.default", args=(mask,))]
    x, p = dropout.args[:2]
    kept = f"{node.name}_kept"
    return [
        Node(name=kept, op="aten.mul.Tensor", args=(x, mask), outs=node.outs, module=node.module),
        msgspec.structs.replace(node, op="aten.mul.Tensor", args=({"node": kept}, 0.0 if p == 1 else 1 / (1 - p))),
    ]
