"""Normalisations, with weights other than the defaults 1 and 0, and scans."""

from __future__ import annotations

from math import log, sqrt

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import Range, SketchValue, normal, require

NORMS = "normalisations"
_WEIGHT = "nn.init.normal_({}.weight, 1.0, 0.2)"
_BIAS = "nn.init.normal_({}.bias, 0.0, 0.3)"


def _affine(known: Range) -> Range:
    return known * normal(0.2, 1.0) + normal(0.3)


@operator("layer_norm", NORMS, "a layer norm")
def _layer_norm(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[-1] >= 5)
    norm = s.module("norm", f"nn.LayerNorm({s.size(x.shape[-1])})", _WEIGHT, _BIAS)
    return s.assign("normed", f"{norm}({x.name})", x.shape, _affine(x.range.standardised()), constant_sums=True)


@operator("rms_norm", NORMS, "an RMS norm")
def _rms_norm(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.shape[-1] >= 5 and x.range.std > max(0.01, 0.3 * abs(x.range.mean)))
    norm = s.module("rms", f"nn.RMSNorm({s.size(x.shape[-1])}, eps=1e-5)", _WEIGHT)
    known = x.range.scaled(1 / x.range.rms) * normal(0.2, 1.0)
    return s.assign("normed", f"{norm}({x.name})", x.shape, known.clipped(-11.0, 11.0), constant_sums=True)


@operator("group_norm", NORMS, "a group norm", ranks=(3, 4))
def _group_norm(s: Sketch, x: SketchValue) -> SketchValue:
    ways = [g for g in (2, 3, 4, 5, 8) if x.shape[1] % g == 0]
    require(bool(ways))
    groups = s.rng.choice(ways)
    norm = s.module("groups", f"nn.GroupNorm({groups}, {s.size(x.shape[1])})", _WEIGHT, _BIAS)
    return s.assign("normed", f"{norm}({x.name})", x.shape, _affine(x.range.standardised()), constant_sums=True)


@operator("instance_norm", NORMS, "an instance norm", ranks=(3, 4))
def _instance_norm(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.elements // (x.shape[0] * x.shape[1]) >= 8)
    norm = s.module("norm", f"nn.InstanceNorm{x.rank - 2}d({s.size(x.shape[1])}, affine=True)", _WEIGHT, _BIAS)
    return s.assign("normed", f"{norm}({x.name})", x.shape, _affine(x.range.standardised()), constant_sums=True)


@operator("batch_norm", NORMS, "a batch norm with running statistics", ranks=(2, 3, 4))
def _batch_norm(s: Sketch, x: SketchValue) -> SketchValue:
    kind = 2 if x.rank == 4 else 1
    norm = s.module(
        "norm",
        f"nn.BatchNorm{kind}d({s.size(x.shape[1])}).eval()",
        _WEIGHT,
        _BIAS,
        "nn.init.normal_({}.running_mean, 0.0, 0.3)",
        "nn.init.uniform_({}.running_var, 0.5, 1.5)",
    )
    known = _affine((x.range + normal(0.3)).scaled(1.05))
    return s.assign("normed", f"{norm}({x.name})", x.shape, known, constant_sums=x.range.std < 0.6)


# ---------------------------------------------------------------- scans


def _scan_axis(s: Sketch, x: SketchValue, longest: int) -> int:
    axes = [k for k in range(x.rank) if 4 <= x.shape[k] <= longest and (k > 0 or x.rank == 2)]
    require(bool(axes), "no axis to scan")
    return s.rng.choice(axes)


@operator("cumsum", "scans", "a running sum")
def _running_sum(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _scan_axis(s, x, 512 if s.dtype == "float32" else 128)
    count = x.shape[axis]
    mean, std = x.range.mean * count / 2, x.range.std * sqrt(count) + abs(x.range.mean) * count / 3
    reach = 6 * x.range.std * sqrt(count)
    known = Range(min(0.0, mean * 2) - reach, max(0.0, mean * 2) + reach, mean, std)
    ramp = abs(x.range.mean) * sqrt(count) > x.range.std  # all rows grow alike
    require(not ramp or s.dtype == "float32", "a narrow float cannot tell one ramp from another")
    return s.assign(
        "running", f"{x.name}.cumsum(dim={axis - x.rank if axis else 0})", x.shape, known, constant_sums=ramp
    )


@operator("cumprod", "scans", "a running product")
def _running_product(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _scan_axis(s, x, 64)
    require(x.range.largest < 60 and abs(x.range.mean) < x.range.std, "it grows or vanishes")
    count = x.shape[axis]
    known = Range(0.9**count, 1.1**count, 1.0, 0.05 * min(1.0, x.range.std) * sqrt(count / 2))
    text = f"(1.0 + 0.1 * torch.tanh({x.name})).cumprod(dim={axis - x.rank if axis else 0})"
    return s.assign("growth", text, x.shape, known)


@operator("logcumsumexp", "scans", "a running log-sum-exp", library=True)
def _running_energy(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _scan_axis(s, x, 512)
    require(x.range.largest < 60)
    grown = log(x.shape[axis])
    known = Range(x.range.low, x.range.high + grown, x.range.mean + 0.8 * grown, x.range.std + 0.3 * grown)
    return s.assign("energy", f"torch.logcumsumexp({x.name}, dim={axis - x.rank if axis else 0})", x.shape, known)


@operator("cummax", "scans", "a running maximum", library=True)
def _running_maximum(s: Sketch, x: SketchValue) -> SketchValue:
    axis = _scan_axis(s, x, 512)
    known = x.range.extreme(max(2, x.shape[axis] // 2))
    return s.assign("record", f"{x.name}.cummax(dim={axis - x.rank if axis else 0}).values", x.shape, known)


OPERATORS: tuple[SynthOperator, ...] = (
    _layer_norm,
    _rms_norm,
    _group_norm,
    _instance_norm,
    _batch_norm,
    _running_sum,
    _running_product,
    _running_energy,
    _running_maximum,
)
