"""The pattern of written-out attention, softmax(score(q @ k^T)) @ v, whose intermediates have no other reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hipwright.capture.graph import Graph, Meta, Node, references, returned, short, users
from hipwright.engine.rewrite.contractions import KeyProduct, Operand, key_product, value_product
from hipwright.engine.rewrite.pinned_sizes import hint, metas
from hipwright.engine.templates.attention.problem import (
    FLOATS,
    MAX_HEAD_SIZE,
    is_default,
    is_short_default,
    is_split,
    is_split_default,
)

POINTWISE = {
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "true_divide",
    "neg",
    "where",
    "masked_fill",
    "clamp",
    "clamp_min",
    "clamp_max",
    "clip",
    "maximum",
    "minimum",
    "tanh",
    "sigmoid",
    "relu",
    "leaky_relu",
    "silu",
    "gelu",
    "square",
}
"""What a score may be computed by; all of it is lowered without conditions (lower/pointwise.py)."""
SAME = {"_to_copy", "to", "type_as", "clone", "alias", "detach", "contiguous", "dropout", "expand"}
REGROUPED = {"view", "reshape", "_unsafe_view", "unsqueeze", "squeeze"}


@dataclass
class Match:
    """One attention. chain: the nodes from the product to the softmax; after: those to the product with the values.

    Where the scores are the weights themselves, `softmax` is no node of the graph: it has the name of the last one, and
    the scores as its argument.
    """

    first: Node
    chain: list[Node]
    softmax: Node
    after: list[Node]
    last: Node
    scores: KeyProduct
    q: Operand
    k: Operand
    v: Operand
    order: list[int]  # of the result's dimensions
    lead: list[tuple[Any, ...]]  # leading sizes of the product, the softmax and the result

    @property
    def weights(self) -> bool:
        """Whether the scores are the weights themselves."""
        return self.softmax.name == self.last.name

    @property
    def names(self) -> set[str]:
        """The nodes that the rewrite replaces."""
        return {n.name for n in (self.first, *self.chain, self.softmax, *self.after, self.last)}


class Finder:
    """Looks for the pattern around each softmax."""

    def __init__(self, graph: Graph) -> None:
        self.known = metas(graph)
        self.nodes = {n.name: n for n in graph.nodes}
        self.symbols = {s.name: s for s in graph.symbols}
        self.taken = {*self.known, *self.symbols}
        self.users, self.kept = users(graph), set(returned(graph))

    def meta(self, name: str) -> Meta:
        """What a value is. It must be a tensor."""
        meta = self.known[name]
        assert meta is not None
        return meta

    def shape(self, name: str) -> tuple[Any, ...]:
        """A value's shape."""
        return self.meta(name).shape

    def match(self, softmax: Node) -> Match | None:
        """The attention around a softmax, or None."""
        meta = softmax.outs[0]
        if meta is None or meta.dtype not in FLOATS or len(meta.shape) < 2:
            return None
        if len(softmax.args) < 2 or softmax.args[1] not in (-1, len(meta.shape) - 1):
            return None
        tail = self._tail(softmax)
        head = self._head(softmax.args[0]["node"], softmax, tail[0]) if tail else None
        if tail is None or head is None:
            return None
        return self._found(softmax, tail, head)

    def match_weights(self, last: Node) -> Match | None:
        """The attention whose scores are the weights, as SiLU(q @ k^T) @ v, of which a node is the last product."""
        if not self._half_or_float(last):
            return None
        for p in dict.fromkeys(references(list(last.args))):
            if p not in self.nodes or value_product(last, p, self.shape) is None:
                continue
            stand = msgspec.structs.replace(last, args=({"node": p}, -1), outs=(self.meta(p),))
            head = self._head(p, last, [])
            found = self._found(stand, ([], last, p), head) if head else None
            if found and found.v.name not in found.names and any(self._weighs(n) for n in found.chain):
                return found
        return None

    def _weighs(self, node: Node) -> bool:
        """Whether a node of the chain is more than a scale, which a product of three matrices could leave for last."""
        return short(node.op) not in SAME | REGROUPED | {"mul", "div", "neg"}

    def _found(
        self,
        softmax: Node,
        tail: tuple[list[Node], Node, str],
        head: tuple[tuple[Node, KeyProduct], list[Node]],
    ) -> Match | None:
        """The attention of these parts, where the templates write its sizes."""
        after, last, p = tail
        (first, scores), chain = head
        values, meta = value_product(last, p, self.shape), softmax.outs[0]
        if values is None or meta is None:
            return None
        v, order = values
        out = self.shape(last.name)
        undone = [out[order.index(d)] for d in range(len(out))]
        if tuple(undone[:-2]) != self.shape(p)[:-2]:
            return None  # the values have more leading dimensions than the scores
        lead = [self.shape(first.name)[:-2], meta.shape[:-2], self.shape(p)[:-2]]
        q, k, v = (self._upright(o) for o in (scores.q, scores.k, v))
        found = Match(first, chain, softmax, after, last, scores, q, k, v, order, lead)
        return found if self._sizes(found) is not None else None

    def _upright(self, operand: Operand) -> Operand:
        """The operand before a transpose of its last two dimensions."""
        node, rank = self.nodes.get(operand.name), len(operand.order)
        if node is None or node.op != "aten.transpose.int" or {d % rank for d in node.args[1:]} != {rank - 2, rank - 1}:
            return operand
        swapped = {rank - 2: rank - 1, rank - 1: rank - 2}
        return Operand(node.args[0]["node"], [swapped.get(d, d) for d in operand.order], operand.shape)

    # ------------------------------------------------------------ from the softmax on

    def _tail(self, softmax: Node) -> tuple[list[Node], Node, str] | None:
        """(what only passes the probabilities on, the product with the values, the value it reads)."""
        after: list[Node] = []
        here = softmax
        while True:
            users = self.users.get(here.name, [])
            if len(users) != 1 or here.name in self.kept:
                return None
            user = users[0]
            if not self._passes(user, here.name):
                return after, user, here.name
            after.append(user)
            here = user

    def _passes(self, node: Node, source: str) -> bool:
        """Does the node pass its first argument on: the same values, at most in another dtype or leading shape?"""
        kind = short(node.op)
        if kind not in SAME | REGROUPED or not node.args or node.args[0] != {"node": source}:
            return False
        if source in references([*node.args[1:], *node.kwargs.values()]) or not self._half_or_float(node):
            return False
        if kind == "dropout" and node.args[1] and node.args[2]:
            return False
        shape, old = self.shape(node.name), self.shape(source)
        return shape == old if kind in SAME else len(shape) > 1 and len(old) > 1 and shape[-2:] == old[-2:]

    def _half_or_float(self, node: Node) -> bool:
        return len(node.outs) == 1 and node.outs[0] is not None and node.outs[0].dtype in FLOATS

    # ------------------------------------------------------------ before the softmax

    def _head(
        self, value: str, softmax: Node, after: Sequence[Node]
    ) -> tuple[tuple[Node, KeyProduct], list[Node]] | None:
        """(the product of queries and keys, the chain of its scores) behind the softmax's argument."""
        seen: set[str] = set()
        stack = [value]
        while stack:
            name = stack.pop()
            node = self.nodes.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            product = key_product(node, self.shape)
            if product is not None:
                chain = self._chain(node, softmax, after)
                if chain is not None:
                    return (node, product), chain
            elif self._computes(node):
                stack += reversed(list(references(list(node.args))))
        return None

    def _computes(self, node: Node) -> bool:
        return short(node.op) in POINTWISE | SAME | REGROUPED and not node.op.endswith("_mode")

    def _chain(self, product: Node, softmax: Node, after: Sequence[Node]) -> list[Node] | None:
        """The nodes between the product and the softmax, in order, if nothing else reads them and all are pointwise.

        What casts the probabilities to the scores' dtype does not read them.
        """
        chain: dict[str, Node] = {product.name: product}
        stack = [product]
        while stack:
            here = stack.pop()
            if here.name in self.kept or not self._half_or_float(here):
                return None
            for user in self.users.get(here.name, []):
                if user is softmax or (user in after and short(user.op) == "type_as"):
                    continue
                if not (self._pointwise(user, here) or self._passes(user, here.name)):
                    return None
                if user.name not in chain:
                    chain[user.name] = user
                    stack.append(user)
        return [n for n in self.nodes.values() if n.name in chain and n is not product]

    def _pointwise(self, node: Node, source: Node) -> bool:
        usual = short(node.op) in POINTWISE and not node.op.endswith("_mode") and self._half_or_float(node)
        return usual and self.shape(node.name) == self.shape(source.name)

    # ------------------------------------------------------------ sizes

    def _sizes(self, found: Match) -> dict[str, int] | None:
        """The sizes when captured, or None when the templates do not write them."""
        shapes = [[hint(s, self.symbols) for s in o.shape] for o in (found.q, found.k, found.v)]
        if any(self.meta(o.name).dtype not in FLOATS for o in (found.q, found.k, found.v)):
            return None
        (*_, rows, size), (*_, keys, _), (*_, size_v) = shapes
        heads = [hint(s, self.symbols) for s in found.lead[1]]
        if not 0 < size <= MAX_HEAD_SIZE or not 0 < size_v <= MAX_HEAD_SIZE or len(heads) > 4:
            return None
        return {"rows": rows, "keys": keys, "heads": math.prod(heads), "size": size, "size_v": size_v}

    def usual(self, found: Match) -> bool:
        """The templates' static rule for these sizes."""
        sizes = self._sizes(found)
        assert sizes is not None
        return is_default(self.meta(found.q.name).dtype, **sizes)

    def weighted(self, found: Match) -> tuple[bool, bool]:
        """(whether the template for scores that are weights can write it, whether it is the default)."""
        sizes, dtype = self._sizes(found), self.meta(found.q.name).dtype
        assert sizes is not None
        rows = found.k.order == sorted(found.k.order)  # keys lie as rows, which are copied
        usual = dtype != "float32" and rows and is_split_default(dtype, **sizes)
        return is_split(dtype, sizes["size"], sizes["size_v"]), usual

    def split(self, found: Match, *, library: bool) -> bool:
        """The rule for products by tensor cores, where a run has them. library: it has a kernel for these scores."""
        sizes, dtype = self._sizes(found), self.meta(found.q.name).dtype
        assert sizes is not None
        own = dtype == "float32" or not library
        return (own and is_split_default(dtype, **sizes)) or is_short_default(dtype, **sizes)


# ---------------------------------------------------------------- heads that queries share


def shared_heads(found: Match, finder: Finder) -> tuple[Operand, Operand] | None:
    """k and v with fewer heads than q, when both were repeated in the same way, or have one head for all.

    The numbers of heads become numbers of the program, guarded (rewrite/pinned_sizes.py), so it is enough that they
    agree when captured.
    """
    lead = found.lead[0]
    if not lead or found.q.shape[:-2] != lead:
        return None
    k, v = (_single(o, lead) or repeated(o, finder) for o in (found.k, found.v))
    if k is None or v is None or not k.shape[:-3] == v.shape[:-3] == lead[:-1]:
        return None
    heads, shared, other = (hint(s, finder.symbols) for s in (lead[-1], k.shape[-3], v.shape[-3]))
    return (k, v) if shared and shared == other and heads % shared == 0 else None


def _single(operand: Operand, lead: Sequence[Any]) -> Operand | None:
    """One head that broadcasts to all (multi-query attention)."""
    same = len(lead) > 1 and len(operand.shape) == len(lead) + 2 and operand.shape[-3] == 1 != lead[-1]
    return operand if same else None


def repeated(operand: Operand, finder: Finder) -> Operand | None:
    """What `repeat_interleave`, or unsqueeze, expand and reshape, repeated along the heads."""
    node = finder.nodes.get(operand.name)
    if node is None or len(operand.shape) < 3 or operand.order[:-2] != list(range(len(operand.shape) - 2)):
        return None
    heads = len(operand.shape) - 3
    if node.op == "aten.repeat_interleave.self_int":
        dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
        source = node.args[0]["node"] if dim in (heads, -3) else None
    else:
        source = _expanded(node, heads, finder)
    if source is None:
        return None
    shape = finder.shape(source)
    turned = tuple(shape[d] for d in operand.order)
    return Operand(source, operand.order, turned)


def _expanded(node: Node, heads: int, finder: Finder) -> str | None:
    """The x of `x[:, :, None].expand(b, h, g, n, d).reshape(b, h * g, n, d)`."""
    if short(node.op) not in ("view", "reshape", "_unsafe_view"):
        return None
    wide = finder.nodes.get(node.args[0]["node"])
    while wide is not None and short(wide.op) in ("clone", "contiguous"):
        wide = finder.nodes.get(wide.args[0]["node"])
    if wide is None or wide.op != "aten.expand.default":
        return None
    new = finder.nodes.get(wide.args[0]["node"])
    if new is None or new.op != "aten.unsqueeze.default":
        return None
    source = new.args[0]["node"]
    old, spread, out = finder.shape(source), finder.shape(wide.name), finder.shape(node.name)
    if new.args[1] % (len(old) + 1) != heads + 1 or len(spread) != len(out) + 1:
        return None
    same = spread[: heads + 1] + spread[heads + 2 :] == old
    return source if same and out[:heads] + out[heads + 1 :] == old[:heads] + old[heads + 1 :] else None


__all__ = ["Finder", "Match", "repeated", "shared_heads"]
