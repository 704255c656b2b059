"""Attention that a module writes out, softmax(score(q @ k^T)) @ v, as one call: a rewrite of the graph before lowering.

`score` is any chain of pointwise operators: scales, biases, masks of every kind, soft caps, casts. It stays in the
graph as it is, over an opaque product (`hip.scores`), and the attention templates print it into their kernel, so that
the result is the module's for every mask and value. Scores and probabilities must be read by nothing else. Without a
softmax, `score(q @ k^T) @ v`, the scores are the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, references, short, users
from hipwright.engine.ir.operators import ATTENTION
from hipwright.engine.knobs import SPLIT, Choice
from hipwright.engine.rewrite.attention_library import before_scale, library_scale
from hipwright.engine.rewrite.attention_pattern import Finder, Match, shared_heads
from hipwright.engine.rewrite.pinned_sizes import hint
from hipwright.engine.rewrite.sink_softmax import SINK_SOFTMAX, with_sinks
from hipwright.engine.templates.attention.problem import is_decoding
from hipwright.engine.templates.attention.scores import ROUNDED, SCORE_OPERAND, SCORES


def attention(graph: Graph, choices: Mapping[str, Any]) -> tuple[Graph, dict[str, Choice]]:
    """(the graph with written-out attention as calls where that is chosen, what could be chosen).

    The choice is `attention:<softmax>`: "separate" kernels, "fused", or the "library" where it has a kernel for it; the
    default is the templates' own rule, else the library.
    """
    sunk = with_sinks(graph)
    rewrites = _Rewrites(Finder(sunk), choices)
    for node in sunk.nodes:
        if choices.get(SPLIT) and short(node.op) in ("matmul", "bmm", "einsum"):
            rewrites.weighted(node)
        if short(node.op) in ("softmax", "_softmax", SINK_SOFTMAX):
            rewrites.normalised(node)
    made, finder = rewrites.made, rewrites.finder
    if not made:
        return graph, rewrites.structure
    nodes = [new for node in graph.nodes for new in made.get(node.name, [node])]
    finder.users = users(graph)  # a sink that stays written out is read by its own nodes
    return msgspec.structs.replace(graph, nodes=tuple(_read(nodes, finder))), rewrites.structure


@dataclass
class _Rewrites:
    """What is chosen. made: by the name of a node, what stands in its place; structure: what could be chosen."""

    finder: Finder
    choices: Mapping[str, Any]
    made: dict[str, list[Node]] = field(default_factory=dict)
    structure: dict[str, Choice] = field(default_factory=dict)

    def normalised(self, node: Node) -> None:
        """Adds the rewrite of attention with this softmax."""
        found = self.finder.match(node)
        if found is None or self.made.keys() & found.names:
            return
        if node.op == SINK_SOFTMAX:
            self._sunk(found)
            return
        scale = library_scale(found, self.finder)
        options = ("separate", "fused") if scale is None else ("separate", "fused", "library")
        own = bool(self.choices.get(SPLIT)) and self.finder.split(found, library=scale is not None)
        fused = self.finder.usual(found) or own
        usual = "fused" if fused else options[-1] if scale is not None else "separate"
        chosen = self._chosen(node, "separate" if self._library else usual, options)
        if self._library:
            return
        if chosen == "fused":
            self.made |= _written(found, self.finder)
        elif chosen == "library" and scale is not None:
            self.made |= _called(found, self.finder, scale)

    def weighted(self, node: Node) -> None:
        """Adds the rewrite of attention without a softmax that ends in this node."""
        found = self.finder.match_weights(node)
        if found is None or self.made.keys() & found.names:
            return
        can, usual = self.finder.weighted(found)
        if can and not self._library and self._chosen(node, "fused" if usual else "separate") == "fused":
            self.made |= _written(found, self.finder)

    def _sunk(self, found: Match) -> None:
        """Adds the rewrite of attention with a sink, where few queries read many keys."""
        if not self._library and _decodes(found, self.finder) and self._chosen(found.softmax, "fused") == "fused":
            self.made |= _written(found, self.finder)

    @property
    def _library(self) -> bool:
        """Whether all is left to the library's operators."""
        return bool(self.choices.get("library"))

    def _chosen(self, node: Node, usual: str, options: tuple[str, ...] = ("separate", "fused")) -> Any:
        """What is chosen for a node, which is offered: `usual` by default."""
        key = f"attention:{node.name}"
        self.structure[key] = Choice(options=options, default=usual)
        return self.choices.get(key, usual)


def _decodes(found: Match, finder: Finder) -> bool:
    """Whether few queries read many keys: the template that divides the keys writes it."""
    groups = shared_heads(found, finder)
    sizes = (found.q.shape[-2], found.k.shape[-2], *((found.lead[0][-1], groups[0].shape[-3]) if groups else (1, 1)))
    rows, keys, heads, shared = (hint(size, finder.symbols) for size in sizes)
    return is_decoding(rows * heads // shared, keys)


def _read(nodes: Sequence[Node], finder: Finder) -> list[Node]:
    """The nodes without those that only the rewritten ones had read (heads repeated for each query head)."""
    read, left = set(finder.kept), []
    for node in reversed(nodes):
        if node.name in read or node.name not in finder.users:
            left.append(node)
            read |= set(references([*node.args, *node.kwargs.values()]))
    return left[::-1]


# ---------------------------------------------------------------- the rewrite


@dataclass
class _Writer:
    """Nodes with fresh names."""

    base: str
    taken: set[str]
    module: str
    made: list[Node] = field(default_factory=list)

    def op(self, op: str, args: Sequence[Any], dtype: str, shape: Sequence[Any], name: str = "") -> dict[str, str]:
        """One more node; the reference to it."""
        title, count = name or self.base, 0
        while not name and title in self.taken:
            count += 1
            title = f"{self.base}_{count}"
        self.taken.add(title)
        meta = Meta(dtype=dtype, shape=tuple(shape))
        self.made.append(Node(name=title, op=op, args=tuple(args), outs=(meta,), module=self.module))
        return {"node": title}


def _written(found: Match, finder: Finder) -> dict[str, list[Node]]:
    """What stands in the place of each node of the pattern."""
    made: dict[str, list[Node]] = {n.name: [] for n in (found.softmax, *found.after)}
    made[found.first.name] = _opaque(found, finder)
    for node in found.chain:
        made[node.name] = _sides(node, found, finder)
    writer = _Writer(f"{found.softmax.name}_operand", finder.taken, found.last.module)
    operands = _operands(found, finder, writer)
    out = found.last.outs[0]
    assert out is not None
    shape = [*found.lead[1], operands[0][1][-2], operands[2][1][-1]]
    args = [*(ref for ref, _ in operands), found.softmax.args[0], *([False] if found.weights else [])]
    args += [True, found.softmax.args[2]] if found.softmax.op == SINK_SOFTMAX else []
    writer.base = f"{found.softmax.name}_attention"
    result = writer.op(ATTENTION, args, out.dtype, shape)
    plain = [*found.lead[2], *shape[-2:]]
    turned = found.order != sorted(found.order)
    name = "" if turned else found.last.name
    if plain == shape:
        result = writer.op("aten.alias.default", [result], out.dtype, plain, name)
    else:
        result = writer.op("aten.view.default", [result, _argument(plain)], out.dtype, plain, name)
    if turned:
        writer.op("aten.permute.default", [result, found.order], out.dtype, out.shape, found.last.name)
    made[found.last.name] = writer.made
    return made


def _called(found: Match, finder: Finder, scale: float) -> dict[str, list[Node]]:
    """The library's attention in the place of the last node."""
    writer = _Writer(f"{found.softmax.name}_operand", finder.taken, found.last.module)
    (found.q, before), (found.k, behind) = (before_scale(o, finder) for o in (found.q, found.k))
    scale *= before * behind
    operands = _operands(found, finder, writer)
    out = found.last.outs[0]
    assert out is not None
    turned = found.order != sorted(found.order)
    shape = [*found.lead[1], operands[0][1][-2], operands[2][1][-1]]
    writer.base = f"{found.softmax.name}_attention"
    grouped = operands[1][1][-3] != operands[0][1][-3]
    kwargs = {"scale": scale} | ({"enable_gqa": True} if grouped else {})
    result = writer.op(
        "aten.scaled_dot_product_attention.default",
        [ref for ref, _ in operands],
        out.dtype,
        shape,
        "" if turned else found.last.name,
    )
    writer.made[-1] = msgspec.structs.replace(writer.made[-1], kwargs=kwargs)
    if turned:
        writer.op("aten.permute.default", [result, found.order], out.dtype, out.shape, found.last.name)
    return {name: [] for name in found.names} | {found.last.name: writer.made}


def _opaque(found: Match, finder: Finder) -> list[Node]:
    """The product's name on its score: opaque, times alpha, plus beta times the bias of baddbmm."""
    meta, scores = found.first.outs[0], found.scores
    assert meta is not None
    writer = _Writer(f"{found.first.name}_scores", finder.taken, found.first.module)
    steps: list[tuple[str, list[Any]]] = []
    if scores.alpha != 1:
        steps.append(("aten.mul.Scalar", [scores.alpha]))
    if scores.bias is not None:
        bias = finder.meta(scores.bias["node"])
        side = writer.op(SCORE_OPERAND, [scores.bias, _argument(meta.shape)], bias.dtype, bias.shape)
        if scores.beta != 1:
            side = writer.op("aten.mul.Scalar", [side, scores.beta], bias.dtype, bias.shape)
        steps.append(("aten.add.Tensor", [side]))
    here = writer.op(SCORES, [found.first.name], meta.dtype, meta.shape, "" if steps else found.first.name)
    for number, (op, rest) in enumerate(steps):
        name = found.first.name if number == len(steps) - 1 else ""
        here = writer.op(op, [here, *rest], meta.dtype, meta.shape, name)
    return writer.made


def _sides(node: Node, found: Match, finder: Finder) -> list[Node]:
    """A node of the chain; what it reads from outside is kept in memory first if it is dear.

    A mask that is added in half or bfloat16 may be so large that it swallows the score, so that sum is rounded.
    """
    writer = _Writer(f"{node.name}_side", finder.taken, node.module)
    args: list[Any] = []
    for arg in node.args:
        name = arg.get("node") if isinstance(arg, dict) else None
        if name in finder.nodes and name not in found.names:
            meta = finder.meta(name)
            arg = writer.op(SCORE_OPERAND, [arg, _argument(finder.shape(node.name))], meta.dtype, meta.shape)
        args.append(arg)
    meta = finder.meta(node.name)
    both = len([a for a in args if isinstance(a, dict) and "node" in a]) > 1
    if short(node.op) not in ("add", "sub") or meta.dtype == "float32" or not both:
        return [*writer.made, msgspec.structs.replace(node, args=tuple(args))]
    name = writer.op(node.op, args, meta.dtype, meta.shape)["node"]
    writer.made[-1] = msgspec.structs.replace(writer.made[-1], kwargs=node.kwargs)
    writer.op(ROUNDED, [{"node": name}], meta.dtype, meta.shape, node.name)
    return writer.made


def _operands(found: Match, finder: Finder, writer: _Writer) -> list[tuple[dict[str, str], tuple[Any, ...]]]:
    """q, k and v with the leading dimensions of the softmax, and at least one (reference, shape).

    Heads that k and v share stay shared.
    """
    first, middle, last = found.lead
    grouped = shared_heads(found, finder) if first == middle == last else None
    k, v = grouped or (found.k, found.v)
    out = []
    for operand, lead in ((found.q, first), (k, first), (v, last)):
        name, dtype = {"node": operand.name}, finder.meta(operand.name).dtype
        shape = operand.shape
        if operand.order != sorted(operand.order):
            name = writer.op("aten.permute.default", [name, operand.order], dtype, shape)
        if shape[:-2] != lead and (grouped is None or operand is found.q):
            shape = (*lead, *shape[-2:])
            name = writer.op("aten.expand.default", [name, _argument(shape)], dtype, shape)
        if lead != middle or not middle:
            shape = (*(middle or (1,)), *shape[-2:])
            name = writer.op("aten.view.default", [name, _argument(shape)], dtype, shape)
        out.append((name, shape))
    return out


def _argument(shape: Sequence[Any]) -> list[Any]:
    return [{"size": s} if isinstance(s, str) else s for s in shape]


__all__ = ["attention"]
