"""Windows over space, as numbers: what a convolution or pooling reads along each axis, and how arguments spell it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.engine.ir.index import ONE, ZERO, Fn, Ix, ix, modulo, product
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.table import as_int
from hipwright.engine.lower.values import NotLowered, Tensor


@dataclass(frozen=True)
class ConvAxis:
    """One spatial axis: output `o` reads inputs `o * stride - padding + k * dilation` for k < kernel, inside [0, size).

    transposed: output `o` reads `(o + padding - k * dilation) / stride` where that divides (the gather form).
    """

    size: Ix
    out: Ix
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    transposed: bool = False

    def first(self, tile: int) -> int:
        """The least input of the tile at output 0; the tile at `q * tile` starts `q * step(tile)` later."""
        if not self.transposed:
            return -self.padding
        return -((self.dilation * (self.kernel - 1) - self.padding) // self.stride)

    def step(self, tile: int) -> int:
        """Inputs from one tile of outputs to the next."""
        return tile // self.stride if self.transposed else tile * self.stride

    def span(self, tile: int) -> int:
        """Inputs from the first to the last that `tile` neighbouring outputs read."""
        if not self.transposed:
            return self.stride * (tile - 1) + self.dilation * (self.kernel - 1) + 1
        return max((tile - 1 + self.padding) // self.stride - self.first(tile) + 1, 1)

    @property
    def phases(self) -> int:
        """Classes of outputs that meet different taps: `o % stride` of a transposed axis."""
        return self.stride if self.transposed else 1

    def legal(self, tile: int) -> bool:
        """A tile of a transposed axis holds every phase equally often, so that what is read is known when compiling."""
        return not self.transposed or tile % self.stride == 0


def plane_position(sizes: Sequence[Ix], places: Sequence[Ix]) -> Ix:
    """The position of places that may lie behind the end, so that one along a size of 1 counts too (`flatten`)."""
    return sum((place * product(sizes[j + 1 :]) for j, place in enumerate(places)), ZERO)


def window_start(place: Ix, stride: int, padding: int, dilation: int) -> Ix:
    """Where the window of an output begins: its first tap that is not in the padding before the input.

    Of a window that is all padding that is behind the input's end, and torch gives it as the maximum's place.
    """
    start = place * stride - padding
    if not padding:
        return start
    steps = -(-padding // dilation) * dilation
    return ix(Fn("max", start, modulo(start + steps, ix(dilation))))


TO_CHANNELS_LAST, TO_CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Dimensions of an image [n, c, h, w] as [n, h, w, c], and back."""
POINT = ConvAxis(ONE, ONE, 1)
"""An axis of one element, to write 1-d windows as 2-d ones."""


@dataclass(eq=False)
class Convolution:
    """A convolution's operands and geometry. channels: inputs per output; outputs: outputs per group."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    axes: list[ConvAxis]
    groups: int
    channels: int
    outputs: int
    transposed: bool


def spread(value: Any, n: int, default: int | None = None) -> list[int]:
    """An argument of one number or n as n numbers."""
    if value is None or value == []:
        value = default
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return [as_int(v) for v in (listed * n if len(listed) == 1 else listed)]


def read_convolution(kind: str, args: Sequence[Any], out: Sequence[Ix]) -> Convolution:
    """conv1d..3d, conv_transpose1d..3d or convolution with its arguments in schema order; out: the result's shape.

    Raises NotLowered when the weight's sizes vary.
    """
    listed = [*args, *([None] * (9 - len(args)))]
    x, weight, bias = listed[:3]
    n = weight.rank - 2
    transposed = "transpose" in kind or (kind == "convolution" and bool(listed[6]))
    if kind == "convolution":
        stride, padding, dilation, groups = listed[3], listed[4], listed[5], listed[8]
    elif transposed:
        stride, padding, groups, dilation = listed[3], listed[4], listed[6], listed[7]
    else:
        stride, padding, dilation, groups = listed[3:7]
    kernel, rate = [as_int(s) for s in weight.shape[2:]], spread(dilation, n, 1)
    pads = _padding(padding, kernel, rate)
    axes = [
        ConvAxis(size, o, k, s, p, d, transposed)
        for size, o, k, s, p, d in zip(x.shape[-n:], out[-n:], kernel, spread(stride, n, 1), pads, rate, strict=True)
    ]
    count = as_int(groups) if groups is not None else 1
    rows, columns = as_int(weight.shape[0]), as_int(weight.shape[1])
    channels, outputs = (rows // count, columns) if transposed else (columns, rows // count)
    return Convolution(x, weight, bias, axes, count, channels, outputs, transposed)


def add_bias(c: LoweringContext, bias: Tensor, n: int) -> Callable[[Tensor], Tensor]:
    """What makes a convolution over n axes of its products: a bias for each channel."""

    def finish(value: Tensor) -> Tensor:
        shape = value.shape
        channel = value.rank - n - 1
        spread_bias = c.tensor(
            bias.dtype, [s if k == channel else ONE for k, s in enumerate(shape)], lambda i: bias.at([i[channel]])
        )
        return c.map(lambda a, b: c.arena.binary("+", a, b), value, spread_bias, dtype=value.dtype, shape=shape)

    return finish


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Zeros before each axis; what stands behind follows from the output's size."""
    if padding == "valid":
        return [0] * len(kernel)
    if padding == "same":
        return [d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True)]
    if isinstance(padding, str):
        raise NotLowered(f"padding {padding!r}")
    return spread(padding, len(kernel), 0)
