"""Attention scores that are never in memory: the engine's own operators of rewrite/attention.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE, walk
from hipwright.engine.ir.index import Ind, Ix, ix
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import Handler
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.offers import stored_if_costly

SHARED, LEAST = 4, 1 << 14
"""Scores that read an element, and elements, from which a value that is read across memory, or gathered, is stored: a
bias of pairs with the heads innermost, a bias of positions. Round figures.
"""
SCORES = "hip.scores"
SCORE_OPERAND = "hip.side"
ROUNDED = "hip.rounded"


def scores(c: LoweringContext, meta: Meta, name: str) -> Tensor:
    """The product of a query and a key, which the attention kernel computes and calls `name`; read at one index."""
    return c.tensor(meta.dtype, c.shape(meta), lambda index: c.arena.make("row", (), COMPUTE[meta.dtype], name))


def score_operand(c: LoweringContext, meta: Meta, value: Tensor, shape: Sequence[Any] = ()) -> Tensor | None:
    """What a score is computed from besides the product; stored where it is costly to compute for each score, or to
    read. shape: of the scores.
    """
    kept = stored_if_costly(c, value)
    if kept is None or kept.buffer or not _is_shared(c, kept, shape):
        return kept
    element = kept.at(c.probe(kept.shape))
    apart = any(_is_apart(e.attr[1], c.probe(kept.shape)[-1]) for e in walk([element]) if e.op == "load")
    return c.realise(kept, kept.label or f"{c.origin}_operand") if apart else kept


def _is_shared(c: LoweringContext, value: Tensor, shape: Sequence[Any]) -> bool:
    """Whether many scores read each element."""
    count = c.numel_hint(value.shape)
    scores = c.numel_hint([size if isinstance(size, Ix) else ix(size) for size in shape])
    return value.rank > 0 and count >= LEAST and scores >= SHARED * count


def _is_apart(position: Ix, last: Ix) -> bool:
    """Whether neighbours along the last dimension lie apart in memory, or at places that are read from memory."""
    names = {a.key for a in last.atoms()}
    factors = [factor for mono, factor in position.terms.items() if names & {a.key for a in mono}]
    return factors not in ([], [1]) or any(isinstance(a, Ind) for a in position.atoms())


def rounded(c: LoweringContext, meta: Meta, value: Tensor) -> Tensor:
    """A sum rounded to half or bfloat16 as in the module: -65504 absorbs a score, and then all scores of a row are
    equal.
    """
    name = "round_half" if meta.dtype == "float16" else "round_bfloat16"
    return c.tensor(meta.dtype, value.shape, lambda i: c.arena.call(name, c.arena.cast(value.at(i), "float")))


OPERATORS: dict[str, Handler] = {SCORES: scores, SCORE_OPERAND: score_operand, ROUNDED: rounded}

__all__ = ["OPERATORS", "ROUNDED", "SCORES", "SCORE_OPERAND", "rounded", "score_operand", "scores"]
