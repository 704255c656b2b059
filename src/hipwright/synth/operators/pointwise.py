"""Pointwise operators: of one value, of two, and of a value and parameters."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, expm1, log1p, sin, sqrt, tanh

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import SketchValue, need


def _sigmoid(v: float) -> float:
    return 1 / (1 + exp(-v)) if v > -700 else 0.0


def _softplus(v: float) -> float:
    return v if v > 20 else log1p(exp(v))


ACTIVATIONS: dict[str, tuple[str, str, Callable[[float], float]]] = {
    "gelu": ("GELU", "F.gelu({})", lambda v: v * (1 + erf(v / sqrt(2))) / 2),
    "silu": ("SiLU", "F.silu({})", lambda v: v * _sigmoid(v)),
    "tanh": ("tanh", "torch.tanh({})", tanh),
    "sigmoid": ("sigmoid", "torch.sigmoid({})", _sigmoid),
    "softplus": ("softplus", "F.softplus({})", _softplus),
    "elu": ("ELU", "F.elu({}, alpha=0.7)", lambda v: v if v > 0 else 0.7 * expm1(v)),
    "leaky_relu": ("leaky ReLU", "F.leaky_relu({}, negative_slope=0.1)", lambda v: v if v > 0 else 0.1 * v),
    "hardswish": ("hard swish", "F.hardswish({})", lambda v: v * min(6.0, max(0.0, v + 3)) / 6),
    "mish": ("Mish", "F.mish({})", lambda v: v * tanh(_softplus(v))),
    "sin": ("sine", "torch.sin({})", sin),
}
_INERT = ("leaky_relu", "elu")  # where nothing is negative


def _activation(name: str) -> SynthOperator:
    words, text, function = ACTIVATIONS[name]

    @operator(name, "pointwise", words)
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        need(not (name in _INERT and x.range.low >= 0) and x.range.largest < 60)
        known = x.range.through(function)
        need(known.std > 0.08 * x.range.std, "it is saturated")
        return s.let("activated", text.format(x.name), x.shape, known, level=x.level)

    return make


@operator("clamp", "pointwise", "a clamp")
def _clamp(s: Sketch, x: SketchValue) -> SketchValue:
    low, high = round(x.range.mean - 1.2 * x.range.std, 3), round(x.range.mean + 1.5 * x.range.std, 3)
    need(low < high)
    known = x.range.through(lambda v: min(high, max(low, v)))
    return s.let("clamped", f"{x.name}.clamp({low:g}, {high:g})", x.shape, known, level=x.level)


@operator("exp", "pointwise", "a decaying exponential")
def _exponential(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    return s.let("decay", f"torch.exp(-{text})", x.shape, known.through(lambda v: exp(-v)), level=x.level)


@operator("log1p", "pointwise", "log(1 + x)")
def _logarithm(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    return s.let("compressed", f"torch.log1p({text})", x.shape, known.through(log1p), level=x.level)


@operator("sqrt", "pointwise", "a square root")
def _square_root(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    return s.let("root", f"torch.sqrt({text} + 0.5)", x.shape, known.through(lambda v: sqrt(v + 0.5)), level=x.level)


@operator("rsqrt", "pointwise", "a reciprocal square root")
def _reciprocal_root(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    known = known.through(lambda v: 1 / sqrt(v + 0.25))
    return s.let("inverse", f"torch.rsqrt({text} + 0.25)", x.shape, known, level=x.level)


@operator("add", "pointwise", "a sum of two branches")
def _add(s: Sketch, x: SketchValue) -> SketchValue:
    other = s.partner(x, "residual")
    return s.let("summed", f"{x.name} + {other.name}", x.shape, x.range + other.range, level=s.level(x, other))


@operator("mul", "pointwise", "a learnt scale")
def _scale(s: Sketch, x: SketchValue) -> SketchValue:
    weight = s.parameter("scale", x.shape[-1:], mean=1.0, std=0.3)
    return s.let("scaled", f"{x.name} * {weight.name}", x.shape, x.range * weight.range)


@operator("where", "pointwise", "a choice by a mask")
def _where(s: Sketch, x: SketchValue) -> SketchValue:
    if x.range.low < 0 < x.range.high and s.rng.random() < 0.5:  # both sides meet at 0, so no rounding can jump
        slope = s.parameter("slope", x.shape[-1:], mean=0.25, std=0.1)
        text = f"torch.where({x.name} > 0, {x.name}, {slope.name} * {x.name})"
        return s.let("bent", text, x.shape, x.range | x.range.times(0.25), level=x.level)
    mask, other = s.mask("mask", x.shape), s.partner(x)
    return s.let("chosen", f"torch.where({mask}, {x.name}, {other.name})", x.shape, x.range | other.range)


@operator("addcmul", "pointwise", "a learnt scale and shift")
def _scale_and_shift(s: Sketch, x: SketchValue) -> SketchValue:
    axis = 1 if x.rank > 2 else x.rank - 1
    shape = x.shape[axis : axis + 1]
    gamma = s.parameter("gamma", shape, mean=1.0, std=0.2)
    beta = s.parameter("beta", shape, std=0.5)
    tail = "".join("[:, None]" if k == 0 else "[..., None]" for k in range(x.rank - 1 - axis))
    text = f"torch.addcmul({beta.name}{tail}, {x.name}, {gamma.name}{tail})"
    level = x.level or x.range.std < 1.0  # rows that beta makes alike
    return s.let("shifted", text, x.shape, x.range * gamma.range + beta.range, level=level)


@operator("lerp", "pointwise", "an interpolation between two values")
def _lerp(s: Sketch, x: SketchValue) -> SketchValue:
    other, weight = s.partner(x), round(s.rng.uniform(0.2, 0.8), 2)
    known = x.range.times(1 - weight) + other.range.times(weight)
    text = f"torch.lerp({x.name}, {other.name}, {weight:g})"
    return s.let("blended", text, x.shape, known, level=s.level(x, other))


OPERATORS: tuple[SynthOperator, ...] = (
    *map(_activation, ACTIVATIONS),
    _clamp,
    _exponential,
    _logarithm,
    _square_root,
    _reciprocal_root,
    _add,
    _scale,
    _where,
    _scale_and_shift,
    _lerp,
)
