"""Losses: one number, or one for each element or row."""

from __future__ import annotations

from math import log, prod, sqrt

from hipwright.synth.operators.base import Make, SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import Range, SketchValue, require, uniform

LOSSES = "losses"
MIN_VARIATION = {"float32": 1e-4, "bfloat16": 0.04, "float16": 0.006}
"""Least deviation over mean of a scalar loss between inputs, so that the loss of other inputs fails verification."""


def _reduced(s: Sketch, known: Range, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], Range]:
    """(the text of the argument `reduction`, the result's shape, its range)."""
    count = prod(shape)
    mode = s.rng.choice(["mean", "mean", "none", "sum"])
    if mode == "sum" and count * known.rms > 500:
        mode = "mean"
    if known.std / sqrt(count) < MIN_VARIATION[s.dtype] * known.mean:
        mode = "none"
    if mode == "none":
        return ', reduction="none"', shape, known
    # a scalar: its deviation is that between draws of the inputs
    size = known.mean * (count if mode == "sum" else 1)
    return ("" if mode == "mean" else ', reduction="sum"'), (), Range(0.0, max(2 * size, 0.1), size, max(size, 0.05))


def _pair(call: str) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        require(x.range.largest < 90)
        target = s.float_input("target", x.shape)
        gap = (x.range + target.range.scaled(-1)).mapped(lambda v: v * v if "mse" in call else abs(v))
        tail, shape, known = _reduced(s, gap.clipped(0.0, gap.high), x.shape)
        return s.assign("loss", f"F.{call}({x.name}, {target.name}{tail})", shape, known)

    return make


@operator("binary_cross_entropy_with_logits", LOSSES, "a binary cross-entropy of logits")
def _binary(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.largest < 60)
    target = s.float_input("target", x.shape, kind="unit")
    tail, shape, known = _reduced(s, Range(0.0, x.range.largest + 1, 0.5 + x.range.rms, 0.3 + x.range.std / 2), x.shape)
    return s.assign("loss", f"F.binary_cross_entropy_with_logits({x.name}, {target.name}{tail})", shape, known)


@operator("kl_div", LOSSES, "a Kullback-Leibler divergence")
def _divergence(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.largest < 60 and x.shape[-1] >= 4 and x.rank >= 2)
    target = s.float_input("target", x.shape, kind="unit")
    text = f"F.kl_div(F.log_softmax({x.name}, dim=-1), {target.name}, reduction="
    size = log(x.shape[-1]) / 2
    if s.rng.random() < 0.5 or s.dtype == "bfloat16":
        return s.assign("loss", f'{text}"none")', x.shape, Range(-1.0, 2 * size + x.range.largest, size, size / 2))
    each = size * x.elements / x.shape[0]
    require(each < 800)
    return s.assign("loss", f'{text}"batchmean")', (), Range(0.0, 1.8 * each, each, each))


@operator("cross_entropy_loss", LOSSES, "a cross-entropy with labels")
def _cross_entropy(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.std > 0.1 and x.range.largest < 60 and x.rank == 2 and 8 <= x.shape[1] <= 2048 and x.shape[0] >= 16)
    labels = s.index_input("labels", x.shape[:1], x.shape[1], f"{x.name}.shape[1]")
    size = log(x.shape[1]) + x.range.std**2 / 2
    tail, shape, known = _reduced(
        s, Range(0.0, size + x.range.largest, size, max(x.range.std, 0.1 * size)), x.shape[:1]
    )
    smoothing = ", label_smoothing=0.1" if s.rng.random() < 0.3 and "sum" not in tail else ""
    return s.assign("loss", f"F.cross_entropy({x.name}, {labels}{smoothing}{tail})", shape, known)


@operator("nll_loss_nd", LOSSES, "a negative log-likelihood", aten="nll_loss_nd")
def _likelihood(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.std > 0.1 and x.range.largest < 60 and x.rank == 2 and 8 <= x.shape[1] <= 2048 and x.shape[0] >= 16)
    labels = s.index_input("labels", x.shape[:1], x.shape[1], f"{x.name}.shape[1]")
    size = log(x.shape[1]) + x.range.std**2 / 2
    tail, shape, known = _reduced(
        s, Range(0.0, size + x.range.largest, size, max(x.range.std, 0.1 * size)), x.shape[:1]
    )
    require("none" not in tail, "torch.export of 2.13 takes its shape for () where the batch is free")
    return s.assign("loss", f"F.nll_loss(F.log_softmax({x.name}, dim=1), {labels}{tail})", shape, known)


@operator("soft_margin_loss", LOSSES, "a soft margin loss")
def _soft_margin(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.largest < 9 and abs(x.range.mean) < 3 and x.range.rms > 0.2)
    signs = s.sign_input("signs", x.shape)
    tail, shape, known = _reduced(s, Range(0.0, 10.0, 0.7 + x.range.rms / 3, 0.1 + x.range.rms / 2), x.shape)
    return s.assign("loss", f"F.soft_margin_loss({x.name}, {signs}{tail})", shape, known)


@operator("margin_ranking_loss", LOSSES, "a ranking loss")
def _ranking(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.largest < 60)
    other, signs = s.second_operand(x), s.sign_input("order", x.shape)
    gap = x.range + other.range.scaled(-1)
    require(gap.rms > 0.2, "the margin hides the values")
    known = Range(0.0, gap.largest + 0.5, 0.5, 0.5 * gap.rms)
    tail, shape, known = _reduced(s, known, x.shape)
    return s.assign("loss", f"F.margin_ranking_loss({x.name}, {other.name}, {signs}, margin=0.5{tail})", shape, known)


@operator("triplet_margin_loss", LOSSES, "a triplet loss")
def _triplet(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 2 and x.shape[0] > 3 and x.range.largest < 60 and x.shape[1] >= 4)
    close, far = s.float_input("positive", x.shape), s.float_input("negative", x.shape)
    known = uniform(0.0, 2.0 + x.range.std)
    tail, shape, known = _reduced(s, known, x.shape[:1])
    return s.assign("loss", f"F.triplet_margin_loss({x.name}, {close.name}, {far.name}{tail})", shape, known)


@operator("cosine_embedding_loss", LOSSES, "a cosine embedding loss")
def _cosine(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 2 and x.shape[0] > 3 and x.shape[1] >= 4 and abs(x.range.mean) < x.range.std)
    other, signs = s.float_input("other", x.shape), s.sign_input("signs", x.shape[:1])
    known = Range(0.0, 2.0, 0.5, 0.5 + 1 / sqrt(x.shape[1]))
    tail, shape, known = _reduced(s, known, x.shape[:1])
    return s.assign("loss", f"F.cosine_embedding_loss({x.name}, {other.name}, {signs}{tail})", shape, known)


OPERATORS: tuple[SynthOperator, ...] = (
    operator("mse_loss", LOSSES, "a mean squared error")(_pair("mse_loss")),
    operator("l1_loss", LOSSES, "a mean absolute error")(_pair("l1_loss")),
    operator("smooth_l1_loss", LOSSES, "a smooth L1 loss")(_pair("smooth_l1_loss")),
    operator("huber_loss", LOSSES, "a Huber loss")(_pair("huber_loss")),
    _binary,
    _divergence,
    _cross_entropy,
    _likelihood,
    _soft_margin,
    _ranking,
    _triplet,
    _cosine,
)
