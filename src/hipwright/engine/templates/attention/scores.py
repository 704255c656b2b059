"""Attention scores that are never in memory: the engine's own operators of rewrite/attention.py."""

from __future__ import annotations

from hipwright.capture.graph import Meta
from hipwright.engine.ir.expr import COMPUTE
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import Handler
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.offers import stored_if_costly

SCORES = "hip.scores"
SCORE_OPERAND = "hip.side"
ROUNDED = "hip.rounded"


def scores(c: LoweringContext, meta: Meta, name: str) -> Tensor:
    """The product of a query and a key, which the attention kernel computes and calls `name`; read at one index."""
    return c.tensor(meta.dtype, c.shape(meta), lambda index: c.arena.make("row", (), COMPUTE[meta.dtype], name))


def score_operand(c: LoweringContext, meta: Meta, value: Tensor) -> Tensor | None:
    """What a score is computed from besides the product; stored where it is costly to compute for each score."""
    return stored_if_costly(c, value)


def rounded(c: LoweringContext, meta: Meta, value: Tensor) -> Tensor:
    """A sum rounded to half or bfloat16 as in the module: -65504 absorbs a score, and then all scores of a row are
    equal.
    """
    name = "round_half" if meta.dtype == "float16" else "round_bfloat16"
    return c.tensor(meta.dtype, value.shape, lambda i: c.arena.call(name, c.arena.cast(value.at(i), "float")))


OPERATORS: dict[str, Handler] = {SCORES: scores, SCORE_OPERAND: score_operand, ROUNDED: rounded}

__all__ = ["OPERATORS", "ROUNDED", "SCORES", "SCORE_OPERAND", "rounded", "score_operand", "scores"]
