"""Products of queries and keys, and of probabilities and values, as a module may spell them (rewrite/attention.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hipwright.capture.graph import Node, short
from hipwright.engine.ir.einsum import letters_of

Shape = tuple[Any, ...]
ShapeOf = Callable[[str], Shape]


@dataclass
class Operand:
    """A factor: the value with its dimensions in `order`, and the shape it then has."""

    name: str
    order: list[int]
    shape: Shape


@dataclass
class KeyProduct:
    """alpha * q @ k^T + beta * bias, with q [..., queries, size] and k [..., keys, size]."""

    q: Operand
    k: Operand
    alpha: float = 1
    bias: Any = None
    beta: float = 1


def key_product(node: Node, shape: ShapeOf) -> KeyProduct | None:
    """The scores that a node may be: [..., queries, keys]."""
    kind = short(node.op)
    if kind in ("matmul", "bmm", "mm") and len(node.args) == 2:
        return _plain(node.args[0]["node"], node.args[1]["node"], shape)
    if kind in ("baddbmm", "addmm"):
        made = _plain(node.args[1]["node"], node.args[2]["node"], shape)
        if made is not None:
            made.alpha, made.beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
            made.bias = None if made.beta == 0 else node.args[0]
        return made
    return _equation(node, shape) if kind == "einsum" else None


def _plain(a: str, b: str, shape: ShapeOf) -> KeyProduct | None:
    left, right = shape(a), shape(b)
    if min(len(left), len(right)) < 2:
        return None
    rank = len(right)
    turned = (*right[:-2], right[-1], right[-2])
    k = Operand(b, [*range(rank - 2), rank - 1, rank - 2], turned)
    return KeyProduct(Operand(a, list(range(len(left))), left), k)


def value_product(node: Node, p: str, shape: ShapeOf) -> tuple[Operand, list[int]] | None:
    """(v [..., keys, size], the order that gives the node's dimensions out of [..., queries, size]) of p @ v."""
    kind = short(node.op)
    if kind in ("matmul", "bmm", "mm") and node.args[0] == {"node": p} and node.args[1] != {"node": p}:
        v = node.args[1]["node"]
        right = shape(v)
        rank = len(shape(node.name))
        return (Operand(v, list(range(len(right))), right), list(range(rank))) if len(right) > 1 else None
    return _values_of_equation(node, p, shape) if kind == "einsum" else None


# ---------------------------------------------------------------- einsum


def _terms(node: Node) -> tuple[list[str], list[str], str] | None:
    """(operands, their letters, the result's letters) of a product of two."""
    found = letters_of(node.args[0], len(node.args[1]))
    return ([o["node"] for o in node.args[1]], *found) if found else None


def _arranged(name: str, letters: str, batch: str, rest: str, shape: ShapeOf) -> Operand | None:
    """An operand's dimensions as [batch..., rest], where it has the last ones of the batch at least."""
    mine = "".join(x for x in batch if x in letters)
    if not batch.endswith(mine) or sorted(mine + rest) != sorted(letters):
        return None
    order = [letters.index(x) for x in mine + rest]
    sizes = shape(name)
    return Operand(name, order, tuple(sizes[d] for d in order))


def _equation(node: Node, shape: ShapeOf) -> KeyProduct | None:
    terms = _terms(node)
    if terms is None or len(terms[2]) < 2:
        return None
    (a, b), (la, lb), out = terms
    batch, m, n = out[:-2], out[-2], out[-1]
    if m in lb and n in la:
        a, b, la, lb = b, a, lb, la
    inner = [x for x in la if x in lb and x not in out]
    if m in lb or n in la or len(inner) != 1:
        return None
    q, k = _arranged(a, la, batch, m + inner[0], shape), _arranged(b, lb, batch, n + inner[0], shape)
    return KeyProduct(q, k) if q is not None and k is not None else None


def _values_of_equation(node: Node, p: str, shape: ShapeOf) -> tuple[Operand, list[int]] | None:
    terms = _terms(node)
    if terms is None or terms[0].count(p) != 1 or len(terms[1][place := terms[0].index(p)]) < 2:
        return None
    lp, lv, v, out = terms[1][place], terms[1][1 - place], terms[0][1 - place], terms[2]
    batch, m, n = lp[:-2], lp[-2], lp[-1]
    own = [x for x in lv if x not in lp]
    if n not in lv or n in out or m in lv or len(own) != 1 or sorted(out) != sorted(batch + m + own[0]):
        return None
    values = _arranged(v, lv, batch, n + own[0], shape)
    canonical = batch + m + own[0]
    return (values, [canonical.index(x) for x in out]) if values is not None else None


__all__ = ["KeyProduct", "Operand", "key_product", "value_product"]
