"""Products of half types over an odd number of terms, over a multiple of 8 with zeros: the library's fast kernels read
16 bytes at a time, and rows of 479 numbers begin at no multiple of that.

The zeros add nothing to a finite sum; where a factor is not finite, they are multiplied with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, short
from hipwright.engine.knobs import SPLIT, Choice, Value
from hipwright.engine.rewrite.pinned_sizes import hint, metas

PACK = 8
"""Numbers of a half type that are read at a time."""
LEAST_TERMS, LEAST_OPERATIONS = 65, 4e9
"""Terms, and floating-point operations, from which a copy of the operands is worth its time. Round figures."""
SUFFIX = "_padded"
"""Ends the names of what is padded."""
_FACTORS = {"linear": (0, 1), "mm": (0, 1), "addmm": (1, 2), "_addmm_activation": (1, 2), "matmul": (0, 1)}
"""The places of the two factors."""


def padded_products(graph: Graph, choices: Mapping[str, Value]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with padded factors where that is chosen, what could be chosen).

    The choice is `pad:<product>`. By default products are padded in runs for NVIDIA GPUs.
    """
    known, structure, nodes = metas(graph), dict[str, Choice](), list[Node]()
    taken = set(known)
    symbols = {s.name: s for s in graph.symbols}
    for node in graph.nodes:
        places = _FACTORS.get(short(node.op))
        metas_ = [known.get(node.args[k]["node"]) for k in places] if places else []
        terms = _odd_terms(metas_)
        out = node.outs[0] if node.outs else None
        if places is None or terms is None or out is None or choices.get("library"):
            nodes.append(node)
            continue
        if 2.0 * terms * prod(hint(size, symbols) for size in out.shape) < LEAST_OPERATIONS:
            nodes.append(node)
            continue
        key = f"pad:{node.name}"
        structure[key] = Choice(options=(False, True), default=bool(choices.get(SPLIT)))
        if not choices.get(key, structure[key].default):
            nodes.append(node)
            continue
        args = list(node.args)
        for place, meta, from_end in zip(places, metas_, (1, 1 if short(node.op) == "linear" else 2), strict=True):
            assert meta is not None
            made = _padded(args[place], meta, from_end, -terms % PACK, taken)
            nodes.append(made)
            args[place] = {"node": made.name}
        nodes.append(msgspec.structs.replace(node, args=tuple(args)))
    return (msgspec.structs.replace(graph, nodes=tuple(nodes)) if structure else graph), structure


def _odd_terms(factors: list[Meta | None]) -> int | None:
    """The number of terms where the factors are of a half type and the first one's rows begin at no border."""
    if not factors or any(meta is None or meta.dtype not in ("float16", "bfloat16") for meta in factors):
        return None
    first, second = factors
    ranks = first is not None and len(first.shape) > 1 and second is not None and len(second.shape) == 2
    terms = first.shape[-1] if first is not None and ranks else None
    return terms if isinstance(terms, int) and terms >= LEAST_TERMS and terms % PACK else None


def _padded(value: Any, meta: Meta, from_end: int, by: int, taken: set[str]) -> Node:
    """The node that adds zeros behind a dimension, counted from the end."""
    name = f"{value['node']}{SUFFIX}"
    while name in taken:
        name = f"{name}_"
    taken.add(name)
    shape = list(meta.shape)
    shape[-from_end] += by  # type: ignore[operator]  # the number of terms is a number
    amounts = [0, 0] * (from_end - 1) + [0, by]
    out = Meta(dtype=meta.dtype, shape=tuple(shape))
    return Node(name=name, op="aten.constant_pad_nd.default", args=(value, amounts, 0.0), outs=(out,))
