"""Matrix products and attention, of small sizes; the engine's coverage counts them as library calls."""

from __future__ import annotations

from math import sqrt

from hipwright.synth.operators.base import SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import SketchValue, normal, require

PRODUCTS = "products"
_MAX_MULTIPLICATIONS = 1 << 27


def _output_width(s: Sketch, x: SketchValue) -> int:
    out = s.rng.choice([24, 32, 48, 64, 80])
    require(x.shape[-1] <= 1024 and x.elements * out <= _MAX_MULTIPLICATIONS, "too much work")
    return out


@operator("linear", PRODUCTS, "a linear layer", library=True)
def _linear(s: Sketch, x: SketchValue) -> SketchValue:
    out, width = _output_width(s, x), x.shape[-1]
    layer = s.module("project", f"nn.Linear({s.size(width)}, {s.size(out)})")
    return s.assign(
        "projected", f"{layer}({x.name})", (*x.shape[:-1], out), normal(sqrt((x.range.rms**2 + 1 / width) / 3))
    )


@operator("matmul", PRODUCTS, "a matrix product with a learnt matrix", library=True)
def _matmul(s: Sketch, x: SketchValue) -> SketchValue:
    out, width = _output_width(s, x), x.shape[-1]
    weight = s.parameter("mixing", (width, out), std=round(1 / sqrt(width), 4))
    return s.assign(
        "mixed", f"torch.matmul({x.name}, {weight.name})", (*x.shape[:-1], out), normal(max(x.range.rms, 1e-6))
    )


@operator("addmm", PRODUCTS, "a matrix product with a bias", ranks=(2,), library=True)
def _addmm(s: Sketch, x: SketchValue) -> SketchValue:
    out, width = _output_width(s, x), x.shape[-1]
    require(x.rank == 2)
    weight = s.parameter("weight", (width, out), std=round(1 / sqrt(width), 4))
    bias = s.parameter("bias", (out,), std=0.5)
    known = normal(max(x.range.rms, 1e-6)) + bias.range
    return s.assign("mixed", f"torch.addmm({bias.name}, {x.name}, {weight.name})", (x.shape[0], out), known)


@operator("bmm", PRODUCTS, "a batched product of a value with itself", ranks=(3,), library=True)
def _bmm(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 3 and x.elements * x.shape[1] <= _MAX_MULTIPLICATIONS and x.shape[1] <= 256, "too much work")
    other = s.float_input("keys", x.shape)
    known = normal(max(x.range.rms, 1e-6) * sqrt(x.shape[-1])).scaled(1 / sqrt(x.shape[-1]))
    text = f"torch.bmm({x.name}, {other.name}.transpose(1, 2)) / {x.name}.shape[-1] ** 0.5"
    return s.assign("scores", text, (*x.shape[:2], x.shape[1]), known)


@operator("mv", PRODUCTS, "a product with a learnt vector", ranks=(2,), library=True)
def _mv(s: Sketch, x: SketchValue) -> SketchValue:
    require(x.rank == 2 and x.shape[0] > 1)
    weight = s.parameter("direction", x.shape[-1:], std=round(2 / sqrt(x.shape[-1]), 4))
    return s.assign("score", f"torch.mv({x.name}, {weight.name})", x.shape[:1], normal(2 * max(x.range.rms, 1e-6)))


@operator("scaled_dot_product_attention", "attention", "attention", ranks=(3, 4), library=True)
def _attention(s: Sketch, x: SketchValue) -> SketchValue:
    require(
        x.rank in (3, 4) and x.shape[-1] <= 512 and 2 <= x.shape[-2] <= 256 and x.elements <= 200_000, "too much work"
    )
    require(abs(x.range.mean) < 2 * x.range.std)
    keys, values = s.float_input("keys", x.shape), s.float_input("values", x.shape)
    causal = ", is_causal=True" if s.rng.random() < 0.5 else ""
    text = f"F.scaled_dot_product_attention({x.name}, {keys.name}, {values.name}{causal})"
    return s.assign("attended", text, x.shape, normal(min(1.0, 2.5 / sqrt(x.shape[-2]))))


@operator("masked_fill", "attention", "masked scores", aten="masked_fill")
def _masked_scores(s: Sketch, x: SketchValue) -> SketchValue:
    mask = s.mask_input("hidden", x.shape, 0.2)
    known = x.range.softmax(x.shape[-1])
    require(x.shape[-1] >= 8 and (s.dtype != "float16" or x.shape[-1] <= 600) and x.range.largest < 200)
    scores = f"{x.name}.masked_fill({mask}, -10000.0)"
    return s.assign("attention", f"torch.softmax({scores}, dim=-1)", x.shape, known, constant_sums=True)


OPERATORS: tuple[SynthOperator, ...] = (_linear, _matmul, _addmm, _bmm, _mv, _attention, _masked_scores)
