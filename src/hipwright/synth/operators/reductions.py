"""Reductions over one or several axes, distances between rows, and softmax-like operators."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, prod, sqrt, tanh

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import TAIL, Range, SketchValue, require

REDUCTIONS = "reductions"


def _axes_text(axes: Sequence[int], rank: int) -> str:
    """The text of axes: the last two are counted from the end."""
    named = [k - rank if k >= rank - 2 and rank > 1 and k > 0 else k for k in axes]
    return str(named[0]) if len(named) == 1 else f"({', '.join(map(str, named))})"


def _reduced(s: Sketch, x: SketchValue, axes: Sequence[int]) -> tuple[tuple[int, ...], str, int]:
    """(the result's shape, the text of the arguments, the number of elements reduced to one)."""
    keep = s.rng.random() < 0.25 or len(axes) == x.rank
    shape = tuple(1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes)
    return shape, f"dim={_axes_text(axes, x.rank)}{', keepdim=True' if keep else ''}", prod(x.shape[k] for k in axes)


@operator("sum", REDUCTIONS, "a sum")
def _total(s: Sketch, x: SketchValue) -> SketchValue:
    require(not x.constant_sums, "it sums to a constant")
    shape, args, count = _reduced(s, x, s.dims(x))
    return s.assign("total", f"{x.name}.sum({args})", shape, x.range.summed(count))


@operator("mean", REDUCTIONS, "a mean")
def _mean(s: Sketch, x: SketchValue) -> SketchValue:
    require(not x.constant_sums, "its mean is a constant")
    shape, args, count = _reduced(s, x, s.dims(x))
    return s.assign("average", f"{x.name}.mean({args})", shape, x.range.averaged(count))


@operator("amax", REDUCTIONS, "a maximum over an axis")
def _largest(s: Sketch, x: SketchValue) -> SketchValue:
    shape, args, count = _reduced(s, x, s.dims(x))
    return s.assign("peak", f"{x.name}.amax({args})", shape, x.range.extreme(count))


@operator("amin", REDUCTIONS, "a minimum over an axis")
def _smallest(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.range.low < -0.1 and abs(x.range.mean) < 0.5 * x.range.std, "it is close to a constant")
    shape, args, count = _reduced(s, x, s.dims(x))
    return s.assign("lowest", f"{x.name}.amin({args})", shape, x.range.extreme(count, -1))


def _spread(x: SketchValue, count: int) -> Range:
    """The range of variances over `count` elements."""
    variance = x.range.std**2
    error = variance * sqrt(2.0 / (count - 1))
    return Range(0.0, max(variance + TAIL * error, 1e-6), variance, error)


@operator("var", REDUCTIONS, "a variance")
def _variance(s: Sketch, x: SketchValue) -> SketchValue:
    require(not x.constant_sums, "its variance is a constant")
    shape, args, count = _reduced(s, x, s.dims(x, 5))
    unbiased = s.rng.choice((0, 1))
    return s.assign("variance", f"{x.name}.var({args}, correction={unbiased})", shape, _spread(x, count))


@operator("std", REDUCTIONS, "a standard deviation")
def _deviation(s: Sketch, x: SketchValue) -> SketchValue:
    require(not x.constant_sums, "its deviation is a constant")
    shape, args, count = _reduced(s, x, s.dims(x, 5))
    return s.assign("deviation", f"{x.name}.std({args})", shape, _spread(x, count).mapped(lambda v: sqrt(max(v, 0.0))))


@operator("linalg_vector_norm", REDUCTIONS, "a length of vectors")
def _length(s: Sketch, x: SketchValue) -> SketchValue:
    require(not x.constant_sums, "its length is a constant")
    shape, args, count = _reduced(s, x, s.dims(x))
    squares = x.range.mapped(lambda v: v * v).summed(count)
    known = squares.clipped(0.0, squares.high).mapped(lambda v: sqrt(max(v, 0.0)))
    return s.assign("length", f"torch.linalg.vector_norm({x.name}, {args})", shape, known)


@operator("prod", REDUCTIONS, "a product over a short axis", aten="prod")
def _product(s: Sketch, x: SketchValue) -> SketchValue:
    short = [k for k in range(1, x.rank) if 2 <= x.shape[k] <= 32]
    require(bool(short) and x.range.largest < 60, "no short axis")
    axis = s.rng.choice(short)
    factor = f"1.0 + 0.2 * torch.tanh({x.name})"
    each, count = x.range.mapped(lambda v: 1.0 + 0.2 * tanh(v)), x.shape[axis]
    known = Range(
        each.low**count, each.high**count, each.mean**count, each.mean ** (count - 1) * each.std * sqrt(count)
    )
    shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
    return s.assign("gain", f"torch.prod({factor}, dim={_axes_text((axis,), x.rank)})", shape, known)


@operator("any", REDUCTIONS, "a mask of rows that hold anything chosen", aten="any")
def _any_chosen(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank >= 2 and x.shape[-1] >= 4 and x.elements >= 16 * x.shape[-1])
    mask = s.mask_input("chosen", x.shape, round(min(0.4, 0.7 / x.shape[-1]), 5))
    text = f"{x.name} * {mask}.any(dim=-1, keepdim=True)"
    return s.assign("present", text, x.shape, x.range | Range(0.0, 0.0, 0.0, 0.0), constant_sums=x.constant_sums)


@operator("count_nonzero", REDUCTIONS, "a count of what a mask chooses")
def _counted(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank >= 2 and x.shape[-1] >= 8 and not x.constant_sums)
    mask = s.mask_input("valid", x.shape, 0.7)
    count = s.assign(
        "count",
        f"torch.count_nonzero({mask}, dim=-1).clamp(min=1)",
        x.shape[:-1],
        Range(1, x.shape[-1], 0.7 * x.shape[-1], 1),
        dtype="int64",
        keep=False,
    )
    known = x.range.summed(x.shape[-1]).scaled(1 / (0.7 * x.shape[-1]))
    return s.assign("average", f"({x.name} * {mask}).sum(dim=-1) / {count.name}", x.shape[:-1], known)


# ---------------------------------------------------------------- distances between rows


@operator("cosine_similarity", "distances", "a cosine similarity")
def _cosine(s: Sketch, x: SketchValue) -> SketchValue:
    other = s.float_input("other", x.shape)
    require(abs(x.range.mean) < x.range.std, "all vectors point one way")
    axis = s.rng.choice(range(1, x.rank))
    shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
    known = Range(-1.0, 1.0, 0.0, 1 / sqrt(x.shape[axis]))
    text = f"F.cosine_similarity({x.name}, {other.name}, dim={_axes_text((axis,), x.rank)})"
    return s.assign("similarity", text, shape, known)


@operator("pairwise_distance", "distances", "a distance between rows")
def _distance(s: Sketch, x: SketchValue) -> SketchValue:
    other = s.float_input("other", x.shape)
    squares = (x.range + other.range.scaled(-1)).mapped(lambda v: v * v).summed(x.shape[-1])
    known = squares.clipped(0.0, squares.high).mapped(lambda v: sqrt(max(v, 0.0)))
    return s.assign("distance", f"F.pairwise_distance({x.name}, {other.name})", x.shape[:-1], known)


# ---------------------------------------------------------------- softmax and related


def _axis(s: Sketch, x: SketchValue) -> int:
    axis = s.rng.choice([x.rank - 1] * 3 + list(range(1, x.rank)))
    require(x.shape[axis] >= 4 and x.range.largest < 200)
    return axis


def _scale_factor(x: SketchValue) -> float:
    """A factor that gives values of small deviation a deviation of 1."""
    return 1.0 if x.range.std > 0.3 else 1.0 / max(x.range.std, 1e-3)


@operator("softmax", "softmax", "a softmax")
def _softmax(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _axis(s, x)
    require(s.dtype != "float16" or x.shape[axis] <= 600, "float16 loses such small numbers")
    sharper = round(_scale_factor(x), 2)
    name = x.name if sharper == 1.0 else f"{sharper:g} * {x.name}"
    known = x.range.scaled(sharper).softmax(x.shape[axis])
    return s.assign(
        "weights", f"torch.softmax({name}, dim={_axes_text((axis,), x.rank)})", x.shape, known, constant_sums=True
    )


@operator("log_softmax", "softmax", "a log-softmax")
def _log_softmax(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _axis(s, x)
    shift = -log(x.shape[axis]) - x.range.std**2 / 2 - x.range.mean
    known = x.range.scaled(1.0, shift).clipped(-4e3, 0.0)
    text = f"F.log_softmax({x.name}, dim={_axes_text((axis,), x.rank)})"
    return s.assign("logits", text, x.shape, known, constant_sums=True)


@operator("logsumexp", "softmax", "a log-sum-exp")
def _logsumexp(s: Sketch, x: SketchValue) -> SketchValue:
    require(not x.constant_sums, "it is a constant")
    axis = _axis(s, x)
    count = x.shape[axis]
    spread = sqrt(max(exp(min(x.range.std, 2.0) ** 2) - 1, 1e-9) / count)
    middle = x.range.mean + log(count) + x.range.std**2 / 2
    known = Range(x.range.low + log(count), x.range.high + log(count), middle, min(spread, x.range.std))
    shape = tuple(n for k, n in enumerate(x.shape) if k != axis)
    return s.assign("energy", f"torch.logsumexp({x.name}, dim={_axes_text((axis,), x.rank)})", shape, known)


OPERATORS: tuple[SynthOperator, ...] = (
    _total,
    _mean,
    _largest,
    _smallest,
    _variance,
    _deviation,
    _length,
    _product,
    _any_chosen,
    _counted,
    _cosine,
    _distance,
    _softmax,
    _log_softmax,
    _logsumexp,
)
