"""Pointwise operators of one value, of two values, and of a value and parameters."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp, expm1, log1p, sin, sqrt, tanh

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import SketchValue, require


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
_NEGATIVE_ONLY = ("leaky_relu", "elu")  # they change negative elements only


def _activation(name: str) -> SynthOperator:
    phrase, text, function = ACTIVATIONS[name]

    @operator(name, "pointwise", phrase)
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        require(not (name in _NEGATIVE_ONLY and x.range.low >= 0) and x.range.largest < 60)
        known = x.range.mapped(function)
        require(known.std > 0.08 * x.range.std, "it is saturated")
        return s.assign("activated", text.format(x.name), x.shape, known, constant_sums=x.constant_sums)

    return make


@operator("clamp", "pointwise", "a clamp")
def _clamp(s: Sketch, x: SketchValue) -> SketchValue:
    low, high = round(x.range.mean - 1.2 * x.range.std, 3), round(x.range.mean + 1.5 * x.range.std, 3)
    require(low < high)
    known = x.range.mapped(lambda v: min(high, max(low, v)))
    return s.assign("clamped", f"{x.name}.clamp({low:g}, {high:g})", x.shape, known, constant_sums=x.constant_sums)


@operator("exp", "pointwise", "a decaying exponential")
def _exponential(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    return s.assign(
        "decay", f"torch.exp(-{text})", x.shape, known.mapped(lambda v: exp(-v)), constant_sums=x.constant_sums
    )


@operator("log1p", "pointwise", "log(1 + x)")
def _logarithm(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    return s.assign("compressed", f"torch.log1p({text})", x.shape, known.mapped(log1p), constant_sums=x.constant_sums)


@operator("sqrt", "pointwise", "a square root")
def _square_root(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    return s.assign(
        "root",
        f"torch.sqrt({text} + 0.5)",
        x.shape,
        known.mapped(lambda v: sqrt(v + 0.5)),
        constant_sums=x.constant_sums,
    )


@operator("rsqrt", "pointwise", "a reciprocal square root")
def _reciprocal_root(s: Sketch, x: SketchValue) -> SketchValue:
    text, known = s.positive(x)
    known = known.mapped(lambda v: 1 / sqrt(v + 0.25))
    return s.assign("inverse", f"torch.rsqrt({text} + 0.25)", x.shape, known, constant_sums=x.constant_sums)


@operator("add", "pointwise", "a sum of two branches")
def _add(s: Sketch, x: SketchValue) -> SketchValue:
    other = s.second_operand(x, "residual")
    return s.assign(
        "summed", f"{x.name} + {other.name}", x.shape, x.range + other.range, constant_sums=s.constant_sums_of(x, other)
    )


@operator("mul", "pointwise", "a learnt scale")
def _scale(s: Sketch, x: SketchValue) -> SketchValue:
    weight = s.parameter("scale", x.shape[-1:], mean=1.0, std=0.3)
    return s.assign("scaled", f"{x.name} * {weight.name}", x.shape, x.range * weight.range)


@operator("where", "pointwise", "a choice by a mask")
def _where(s: Sketch, x: SketchValue) -> SketchValue:
    if x.range.low < 0 < x.range.high and s.rng.random() < 0.5:  # both branches are 0 at 0, so rounding causes no jump
        slope = s.parameter("slope", x.shape[-1:], mean=0.25, std=0.1)
        text = f"torch.where({x.name} > 0, {x.name}, {slope.name} * {x.name})"
        return s.assign("bent", text, x.shape, x.range | x.range.scaled(0.25), constant_sums=x.constant_sums)
    mask, other = s.mask_input("mask", x.shape), s.second_operand(x)
    return s.assign("chosen", f"torch.where({mask}, {x.name}, {other.name})", x.shape, x.range | other.range)


@operator("addcmul", "pointwise", "a learnt scale and shift")
def _scale_and_shift(s: Sketch, x: SketchValue) -> SketchValue:
    axis = 1 if x.rank > 2 else x.rank - 1
    shape = x.shape[axis : axis + 1]
    gamma = s.parameter("gamma", shape, mean=1.0, std=0.2)
    beta = s.parameter("beta", shape, std=0.5)
    tail = "".join("[:, None]" if k == 0 else "[..., None]" for k in range(x.rank - 1 - axis))
    text = f"torch.addcmul({beta.name}{tail}, {x.name}, {gamma.name}{tail})"
    constant_sums = x.constant_sums or x.range.std < 1.0  # beta dominates: rows are nearly equal
    return s.assign("shifted", text, x.shape, x.range * gamma.range + beta.range, constant_sums=constant_sums)


@operator("lerp", "pointwise", "an interpolation between two values")
def _lerp(s: Sketch, x: SketchValue) -> SketchValue:
    other, weight = s.second_operand(x), round(s.rng.uniform(0.2, 0.8), 2)
    known = x.range.scaled(1 - weight) + other.range.scaled(weight)
    text = f"torch.lerp({x.name}, {other.name}, {weight:g})"
    return s.assign("blended", text, x.shape, known, constant_sums=s.constant_sums_of(x, other))


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
