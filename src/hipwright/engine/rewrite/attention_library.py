"""Which written-out attention the library's own kernel computes: scaled products of half tensors, nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.capture.graph import Node, short
from hipwright.engine.rewrite.attention_pattern import REGROUPED, SAME, Finder, Match
from hipwright.engine.rewrite.contractions import Operand
from hipwright.engine.rewrite.pinned_sizes import hint

KERNEL_SOURCE = ("float16", "bfloat16")
PACK = 8
"""Head sizes must be a multiple: others are padded by the library."""


def library_scale(found: Match, finder: Finder) -> float | None:
    """The factor of the product in `softmax(factor * q @ k^T) @ v`; None when the library's kernel does not apply.

    It keeps scores in float32 (Dao et al., "FlashAttention", 2022), so casts on the way may fall away.
    """
    q, k, v = (finder.meta(o.name) for o in (found.q, found.k, found.v))
    last, sizes = finder.meta(found.last.name), {hint(o.shape[-1], finder.symbols) for o in (found.q, found.k, found.v)}
    halves = q.dtype in KERNEL_SOURCE and all(m.dtype == q.dtype for m in (k, v, last))
    heads = len(found.lead[0]) == 2 and found.lead[0] == found.lead[1] == found.lead[2]
    if not halves or not heads or len(sizes) > 1 or sizes.pop() % PACK:
        return None
    if any(o.shape[:-2] != found.lead[0] for o in (found.q, found.k, found.v)):
        return None
    if found.scores.bias is not None:
        return None
    return _scaled(float(found.scores.alpha), found.chain)


def before_scale(operand: Operand, finder: Finder) -> tuple[Operand, float]:
    """(the operand before a product with a positive number, that number): the library scales the scores instead."""
    node = finder.nodes.get(operand.name)
    if node is None or short(node.op) not in ("mul", "div") or not isinstance(node.args[0], dict):
        return operand, 1.0
    source, factor = node.args[0].get("node"), _scaled(1.0, [node])
    if factor is None or source not in finder.known:
        return operand, 1.0
    old, new = finder.meta(source), finder.meta(operand.name)
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return operand, 1.0
    return Operand(source, operand.order, operand.shape), factor


def _scaled(factor: float, chain: Sequence[Node]) -> float | None:
    """The factor times those of the chain, None when it does something else too."""
    for node in chain:
        kind = short(node.op)
        if kind in SAME | REGROUPED:
            continue
        number = node.args[1] if len(node.args) == 2 and not node.kwargs else None
        if kind not in ("mul", "div") or isinstance(number, bool) or not isinstance(number, (int, float)) or not number:
            return None
        factor = factor * number if kind == "mul" else factor / number
    return factor if factor > 0 else None


__all__ = ["before_scale", "library_scale"]
