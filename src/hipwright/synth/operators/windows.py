"""Operators with spatial windows: pooling, resizing and convolutions."""

from __future__ import annotations

from math import prod, sqrt

from hipwright.synth.operators.base import Make, SynthOperator, operator
from hipwright.synth.sketch import Sketch
from hipwright.synth.values import Range, SketchValue, normal, require

POOLING, RESIZING, CONVOLUTIONS = "pooling", "resizing", "convolutions"


def _spatial(x: SketchValue, n: int) -> tuple[int, ...]:
    require(x.rank == n + 2, "not a batch of channels")
    return x.shape[-n:]


def _window(s: Sketch, x: SketchValue, n: int) -> tuple[int, int, int, tuple[int, ...]]:
    """(kernel, stride, padding, the result's shape)."""
    kernel, stride, padding = s.rng.choice([(2, 2, 0), (3, 2, 1), (3, 1, 1), (4, 3, 0), (5, 2, 2)])
    sizes = _spatial(x, n)
    require(min(sizes) > kernel + 1, "smaller than the window")
    after = tuple((size + 2 * padding - kernel) // stride + 1 for size in sizes)
    return kernel, stride, padding, (*x.shape[:2], *after)


def _max_pool(n: int) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        kernel, stride, padding, shape = _window(s, x, n)
        text = f"F.max_pool{n}d({x.name}, kernel_size={kernel}, stride={stride}, padding={padding})"
        return s.assign("pooled", text, shape, x.range.extreme(kernel**n), constant_sums=False)

    return make


def _avg_pool(n: int) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        kernel, stride, padding, shape = _window(s, x, n)
        text = f"F.avg_pool{n}d({x.name}, kernel_size={kernel}, stride={stride}, padding={padding})"
        return s.assign("pooled", text, shape, x.range.averaged(kernel**n), constant_sums=x.constant_sums)

    return make


def _adaptive(n: int, kind: str) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        sizes = _spatial(x, n)
        size = s.rng.choice([k for k in (2, 3, 4, 5, 7) if 2 * k <= min(sizes)] or [1])
        require(not x.constant_sums and min(sizes) >= 2)
        count = prod(sizes) // size**n
        known = x.range.averaged(count) if kind == "avg" else x.range.extreme(count)
        text = f"F.adaptive_{kind}_pool{n}d({x.name}, {size if n == 1 else (size,) * n})"
        return s.assign("pooled", text, (*x.shape[:2], *(size,) * n), known)

    return make


def _resize(mode: str, n: int) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        _spatial(x, n)
        exact = ", align_corners=False" if mode in ("linear", "bilinear", "bicubic") else ""
        text = f'F.interpolate({x.name}, scale_factor=2, mode="{mode}"{exact})'
        known = (
            x.range
            if "nearest" in mode
            else Range(x.range.low * 1.3, x.range.high * 1.3, x.range.mean, 0.75 * x.range.std)
        )
        if mode == "bicubic":
            known = known | Range(-x.range.largest * 1.6, x.range.largest * 1.6, x.range.mean, x.range.std)
        return s.assign(
            "resized", text, (*x.shape[:2], *(2 * k for k in x.shape[2:])), known, constant_sums=x.constant_sums
        )

    return make


def _convolved(x: SketchValue, fan: int) -> Range:
    """The range of a convolution. PyTorch draws weights and bias uniformly within 1 / sqrt(fan)."""
    std = sqrt(x.range.rms**2 / 3 + 1 / (3 * fan))
    return normal(std)


def _conv(n: int) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        sizes, channels = _spatial(x, n), x.shape[1]
        require(x.elements <= 150_000 and min(sizes) >= 4, "too much work")
        depthwise = channels > 32 or s.rng.random() < 0.4
        out = channels if depthwise else s.rng.choice([8, 12, 16])
        extra = f", groups={s.size(channels)}" if depthwise else ""
        conv = s.module("conv", f"nn.Conv{n}d({s.size(channels)}, {s.size(out)}, kernel_size=3, padding=1{extra})")
        fan = 3**n * (1 if depthwise else channels)
        return s.assign("mixed", f"{conv}({x.name})", (x.shape[0], out, *sizes), _convolved(x, fan))

    return make


def _conv_transpose(n: int) -> Make:
    def make(s: Sketch, x: SketchValue) -> SketchValue:
        sizes, channels = _spatial(x, n), x.shape[1]
        require(x.elements <= 60_000 and channels <= 48, "too much work")
        out = s.rng.choice([6, 8, 12])
        conv = s.module("expand", f"nn.ConvTranspose{n}d({s.size(channels)}, {s.size(out)}, kernel_size=2, stride=2)")
        known = normal(sqrt(x.range.rms**2 * channels / (3 * out * 2**n) + 1 / (3 * out * 2**n)))
        return s.assign("expanded", f"{conv}({x.name})", (x.shape[0], out, *(2 * k for k in sizes)), known)

    return make


OPERATORS: tuple[SynthOperator, ...] = (
    operator("max_pool1d", POOLING, "a max pooling", ranks=(3,))(_max_pool(1)),
    operator("max_pool2d", POOLING, "a max pooling", ranks=(4,))(_max_pool(2)),
    operator("avg_pool1d", POOLING, "an average pooling", ranks=(3,))(_avg_pool(1)),
    operator("avg_pool2d", POOLING, "an average pooling", ranks=(4,))(_avg_pool(2)),
    operator("adaptive_avg_pool1d", POOLING, "an adaptive average pooling", ranks=(3,))(_adaptive(1, "avg")),
    operator("adaptive_avg_pool2d", POOLING, "an adaptive average pooling", ranks=(4,))(_adaptive(2, "avg")),
    operator("adaptive_max_pool1d", POOLING, "an adaptive max pooling", ranks=(3,))(_adaptive(1, "max")),
    operator("adaptive_max_pool2d", POOLING, "an adaptive max pooling", ranks=(4,))(_adaptive(2, "max")),
    operator("upsample_nearest1d", RESIZING, "an enlargement", ranks=(3,))(_resize("nearest", 1)),
    operator("upsample_nearest2d", RESIZING, "an enlargement", ranks=(4,))(_resize("nearest", 2)),
    operator("_upsample_nearest_exact2d", RESIZING, "an exact enlargement", ranks=(4,))(_resize("nearest-exact", 2)),
    operator("upsample_linear1d", RESIZING, "a linear enlargement", ranks=(3,))(_resize("linear", 1)),
    operator("upsample_bilinear2d", RESIZING, "a bilinear enlargement", ranks=(4,))(_resize("bilinear", 2)),
    operator("upsample_bicubic2d", RESIZING, "a bicubic enlargement", ranks=(4,), library=True)(_resize("bicubic", 2)),
    operator("conv1d", CONVOLUTIONS, "a 1-d convolution", ranks=(3,), library=True)(_conv(1)),
    operator("conv2d", CONVOLUTIONS, "a 2-d convolution", ranks=(4,), library=True)(_conv(2)),
    operator("conv_transpose1d", CONVOLUTIONS, "a transposed convolution", ranks=(3,), library=True)(
        _conv_transpose(1)
    ),
    operator("conv_transpose2d", CONVOLUTIONS, "a transposed convolution", ranks=(4,), library=True)(
        _conv_transpose(2)
    ),
)
