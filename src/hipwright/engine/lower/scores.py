"""Scores of attention that no memory holds: the engine's own operators of rewrites_attention.py."""

from __future__ import annotations

from hipwright.engine.calls import kept
from hipwright.engine.expr import COMPUTE
from hipwright.engine.graph import Meta
from hipwright.engine.lower.core import TABLE, Context, Tensor

SCORES = "hip.scores"
SIDE = "hip.side"


def scores(c: Context, meta: Meta, name: str) -> Tensor:
    """The product of a query and a key, which the attention's kernel computes and calls `name`; read at one place."""
    return c.tensor(meta.dtype, c.shape(meta), lambda index: c.arena.make("row", (), COMPUTE[meta.dtype], name))


def side(c: Context, meta: Meta, value: Tensor) -> Tensor | None:
    """What a score is computed with besides the product: from memory, when it is dear to compute for each score."""
    return kept(c, value)


TABLE[SCORES] = scores
TABLE[SIDE] = side

__all__ = ["SCORES", "SIDE", "scores", "side"]
