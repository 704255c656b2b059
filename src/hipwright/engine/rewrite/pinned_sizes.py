"""Sizes that a template must know when it is written: their captured values stand in the graph, and are guarded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, Size, Symbol, short
from hipwright.engine.lower.short_rows import LARGE, WIDEST, few

_WRITES = frozenset({"index_put", "index_put_", "index_copy", "index_copy_"})
"""Writes of rows into a cache, whose width is that of the vectors that are stored."""
_MOVES = frozenset({"cat", "flip", "roll"})
"""What moves the elements of a tensor."""
_PASSED = frozenset({"copy", "clone", "_to_copy", "slice"})
"""What lies between such a move and the state that takes its result."""
_REDUCTIONS = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "linalg_vector_norm": 2}
"""The place of the argument that names the dimensions."""
_NAME = re.compile(r"[A-Za-z_]\w*")


def metas(graph: Graph) -> dict[str, Meta | None]:
    """The first output of every value by name; a getitem's is its source's."""
    found: dict[str, Meta | None] = {i.name: i.meta for i in graph.inputs}
    found |= {n.name: n.outs[0] for n in graph.nodes if n.outs}
    return found


def pinned(graph: Graph) -> Graph:
    """The graph with the head sizes of attention fixed, and sizes of q, k and v that must be equal given one name."""
    known = metas(graph)
    symbols = {s.name: s for s in graph.symbols}
    values: dict[str, Size] = {}
    for node in graph.nodes:
        if short(node.op) in ("scaled_dot_product_attention", "hip.attention"):
            shapes = [meta.shape for a in node.args[:3] if (meta := known.get(a["node"])) is not None]
            if len(shapes) == 3 and len({len(s) for s in shapes}) == 1 and len(shapes[0]) > 2:
                _heads(shapes, symbols, values)
                _equal(_attended(*shapes), symbols, values)
        elif short(node.op) == "_scaled_mm":
            _equal(_multiplied(node, known), symbols, values)
        elif short(node.op) in _WRITES:
            _written_width(node, known, symbols, values)
        elif short(node.op) in _REDUCTIONS and node.outs and node.outs[0] is not None:
            meta = known.get(node.args[0]["node"])
            if meta is not None and prod(hint(s, symbols) for s in node.outs[0].shape) >= LARGE:
                dims = node.args[_REDUCTIONS[short(node.op)] :][:1]
                _short_row(meta.shape, dims[0] if dims else None, symbols, values)
    _moved_rows(graph, symbols, values)
    return substituted(graph, values)


def _heads(shapes: Sequence[Sequence[Size]], symbols: Mapping[str, Symbol], values: dict[str, Size]) -> None:
    """Fix the head sizes, and the numbers of heads where they differ (grouped queries)."""
    sizes = [s[-1] for s in shapes]
    heads = [s[-3] for s in shapes]
    if len({hint(h, symbols) for h in heads}) > 1:
        sizes += heads
    for size in sizes:
        for name in _NAME.findall(str(size)):
            if name in symbols:
                values[name] = symbols[name].hint


def _written_width(
    node: Node, known: Mapping[str, Meta | None], symbols: Mapping[str, Symbol], values: dict[str, Size]
) -> None:
    """Fix the width of the rows that are written into and, where each fills one, of the rows that are written."""
    put = short(node.op).startswith("index_put")
    given = (node.args[0], node.args[2 if put else 3])
    target, value = (known.get(a["node"]) if isinstance(a, dict) else None for a in given)
    if target is None or len(target.shape) < 2:
        return
    rank, width = len(target.shape), target.shape[-1]
    if isinstance(width, str) and width not in symbols:
        return  # what another width leaves
    named = len(node.args[1]) == rank if put else node.args[1] % rank == rank - 1  # places in the row itself
    rows = [width]
    if not named and value is not None and value.shape and hint(value.shape[-1], symbols) == hint(width, symbols):
        rows.append(value.shape[-1])
    for size in rows:
        values |= {name: symbols[name].hint for name in _NAME.findall(str(size)) if name in symbols}


def _short_row(shape: Sequence[Size], dims: Any, symbols: Mapping[str, Symbol], values: dict[str, Size]) -> None:
    """Fix the sizes of a row of few elements, which is written out (engine/lower/short_rows.py)."""
    listed = [dims] if isinstance(dims, int) else dims
    if not isinstance(listed, list) or not all(isinstance(d, int) for d in listed):
        return
    sizes = [shape[d] for d in listed]
    if few(prod(hint(size, symbols) for size in sizes)):
        values |= {size: symbols[size].hint for size in sizes if isinstance(size, str) and size in symbols}


def _moved_rows(graph: Graph, symbols: Mapping[str, Symbol], values: dict[str, Size]) -> None:
    """Fix the width of a state's short rows that move within themselves (engine/fuse/state_rows.py)."""
    nodes = {n.name: n for n in graph.nodes}
    inputs = {i.access: i.meta for i in graph.inputs}
    for mutation in graph.mutations:
        meta, node = inputs.get(mutation.access), nodes.get(mutation.node)
        while node is not None and short(node.op) in _PASSED:
            args = [a for a in node.args if isinstance(a, dict) and "node" in a]
            node = nodes.get(args[-1]["node"]) if args else None
        if meta is None or len(meta.shape) < 2 or node is None or short(node.op) not in _MOVES:
            continue
        if 1 < hint(meta.shape[-1], symbols) <= WIDEST:
            values |= {name: symbols[name].hint for name in _NAME.findall(str(meta.shape[-1])) if name in symbols}


Pairs = Sequence[tuple[Size, Size]]


def _attended(q: Sequence[Size], k: Sequence[Size], v: Sequence[Size]) -> Pairs:
    """The leading dimensions of q, k and v, and the lengths of k and v."""
    return [*zip(q[:-2], k[:-2], strict=True), *zip(q[:-2], v[:-2], strict=True), (k[-2], v[-2])]


def _multiplied(node: Node, known: Mapping[str, Meta | None]) -> Pairs:
    """The summed dimension of both matrices, and the columns and the bias: the operator's trace compares neither."""
    a, b, _, _, bias = (known.get(arg["node"]) if isinstance(arg, dict) else None for arg in [*node.args, None][:5])
    if a is None or b is None:
        return []
    return [(a.shape[1], b.shape[0]), *([(b.shape[1], bias.shape[0])] if bias is not None else [])]


def _equal(pairs: Pairs, symbols: Mapping[str, Symbol], values: dict[str, Size]) -> None:
    """One name for both sizes of a pair, where they were equal."""
    for first, second in pairs:
        first, second = (values.get(str(s), s) for s in (first, second))
        plain = isinstance(first, int) or first in symbols
        other = symbols.get(str(second))
        if plain and other is not None and first != second and hint(first, symbols) == other.hint:
            values[other.name] = first


def hint(size: Size, symbols: Mapping[str, Symbol]) -> int:
    """A size when captured."""
    return int(_replaced(str(size), {name: s.hint for name, s in symbols.items()}))


def substituted(graph: Graph, values: Mapping[str, Size]) -> Graph:
    """The graph with some symbols replaced by numbers or by other symbols, guarded."""
    if not values:
        return graph

    def size(value: Size) -> Size:
        return _replaced(value, values) if isinstance(value, str) else value

    def meta(m: Meta | None) -> Meta | None:
        if m is None:
            return None
        return Meta(dtype=m.dtype, shape=tuple(map(size, m.shape)), stride=tuple(map(size, m.stride)))

    def argument(value: Any) -> Any:
        if isinstance(value, dict) and "size" in value:
            new = size(value["size"])
            return new if isinstance(new, int) else {"size": new}
        return [argument(v) for v in value] if isinstance(value, (list, tuple)) else value

    nodes = tuple(
        msgspec.structs.replace(
            n,
            args=tuple(argument(a) for a in n.args),
            kwargs={k: argument(v) for k, v in n.kwargs.items()},
            outs=tuple(meta(m) for m in n.outs),
        )
        for n in graph.nodes
    )
    inputs = tuple(msgspec.structs.replace(i, meta=meta(i.meta)) for i in graph.inputs)
    guards = [_substituted(g, values) for g in graph.guards]
    accesses = {s.name: s.access for s in graph.symbols}
    for name, value in values.items():
        guards.append(f"{accesses[name]} == {accesses.get(str(value), value)}")
    symbols = tuple(s for s in graph.symbols if s.name not in values)
    return msgspec.structs.replace(
        graph, nodes=nodes, inputs=inputs, guards=tuple(guards), symbols=symbols, dynamic=bool(symbols)
    )


def _substituted(text: str, values: Mapping[str, Size]) -> str:
    return _NAME.sub(lambda found: str(values.get(found[0], found[0])), text)


def _replaced(text: str, values: Mapping[str, Size]) -> Size:
    """A size's expression with values for some symbols; a number when none is left."""
    new = _substituted(text, values)
    if set(_NAME.findall(new)) - {"min", "max"}:
        return new
    return int(eval(new, {"__builtins__": {}}, {"min": min, "max": max}))
