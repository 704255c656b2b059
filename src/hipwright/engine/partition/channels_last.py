"""Channels-last images for the library's convolutions: where they are the default, and how one is found or made.

Tensor cores multiply along channels, so the library's half-precision convolutions read channels-last images and permute
others before and after. The engine's kernels permute at less cost, as part of what they compute around the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from hipwright.capture.graph import Meta, Node, short
from hipwright.engine.ir.index import Ix
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.conv import spread
from hipwright.engine.templates.offers import permuted

if TYPE_CHECKING:
    from hipwright.engine.lower.context import LoweringContext
    from hipwright.engine.lower.values import Tensor

KINDS = ("conv2d", "conv_transpose2d")
TO_CHANNELS_LAST, TO_CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
"""Dimensions of an image [n, c, h, w] as [n, h, w, c], and back."""
PACK, LEAST_CHANNELS = 8, 16
"""Channels that one 16-byte read takes, and that fill a matrix instruction. To 16 outputs the library's permutations of
96, 128 and 256 channels took an H200 136, 108 and 220 us, a kernel's 75, 66 and 130.
"""
LEAST_WORK, LEAST_BYTES = 2e9, 1 << 23
"""Operations from which a convolution is longer than two launches (a round figure for an H200's matrix units); bytes of
image and result from which what the library permutes is: 25 MB took 23 us of 46, 9 MB 12.5 of 22.6.
"""
FEW_INPUTS_TAPS = 25
"""Taps of a window of stride 1 from which a half image of fewer channels is turned, too: where channels are planes, the
library chooses Fourier transforms. 7 x 7 of 3 channels to 16 took an H200 366 us so, 124 channels last.
"""
NARROW_OUTPUTS, NARROW_INPUTS, FLOAT_WORK = 16, 64, 3e8
"""Transposed convolutions of float32 and stride 1 to few outputs, for which it does, too: 2 x 3 of 128 channels to 16,
0.4e9 operations, took 406 us so, and 27 channels last. The least work is a round figure, not measured.
"""


def usual(c: LoweringContext, node: Node, x: Tensor, weight: Tensor) -> bool | None:
    """Whether channels last is the default of a convolution; None where it is not offered."""
    out, groups = node.outs[0], node.args[6] if len(node.args) > 6 else 1
    sizes = [s.value for s in weight.shape]
    if out is None or short(node.op) not in KINDS or not node.op.endswith((".default", ".input")) or groups != 1:
        return None
    if x.rank != 4 or x.dtype not in ("float16", "bfloat16", "float32") or None in sizes:
        return None
    outside, inside, *taps = (int(s or 0) for s in sizes)
    transposed = short(node.op) == "conv_transpose2d"
    if transposed:
        outside, inside = inside, outside
    made = c.shape(out)
    pixels = x.shape if transposed else made
    work = 2.0 * prod(c.hint(pixels[k]) for k in (0, 2, 3)) * outside * inside * prod(taps)
    unit = prod(spread(node.args[3] if len(node.args) > 3 else None, 2, 1)) == 1
    if x.dtype == "float32":
        narrow = transposed and unit and outside <= NARROW_OUTPUTS and outside % 4 == 0 and prod(taps) > 1
        return work >= FLOAT_WORK if narrow and inside >= NARROW_INPUTS else None
    if _is_product(node, taps) or min(outside, inside) < 2 or outside % PACK:
        return None
    if inside < LEAST_CHANNELS and not transposed:
        large = unit and prod(taps) >= FEW_INPUTS_TAPS and outside >= LEAST_CHANNELS
        return work >= LEAST_WORK if large else None
    if min(outside, inside) < LEAST_CHANNELS or inside % PACK:
        return None
    permuted_bytes = 2 * (c.numel_hint(x.shape) + c.numel_hint(made))
    return work >= LEAST_WORK or permuted_bytes >= LEAST_BYTES


def _is_product(node: Node, taps: Sequence[int]) -> bool:
    """Whether each result is a product of one position's channels, which the library computes as images lie."""
    stride, padding = [*node.args[3:5], None, None][:2]
    return prod(taps) == 1 and prod(spread(stride, 2, 1)) == 1 and not any(spread(padding, 2, 0))


def image(c: LoweringContext, x: Tensor, name: str, shape: Callable[[str], Sequence[Ix]]) -> str:
    """The buffer with an image's elements channels last: an existing one, or a new one. shape: of a buffer."""
    permuted_image = permuted(c, x, TO_CHANNELS_LAST)
    places = c.probe(permuted_image.shape)
    element = permuted_image.at(places)
    if element.op == "load" and element.attr[1] == flatten(permuted_image.shape, places):
        buffer, _, dtype = element.attr
        if dtype == x.dtype and list(shape(buffer)) == list(permuted_image.shape):
            return str(buffer)
    of_parameter = x.buffer in c.parameters  # `prepare` has no kernel that computes something else too
    return str(c.realise(permuted_image, f"{name}_last", between=False, alone=of_parameter).buffer)


def permuted_meta(meta: Meta) -> Meta:
    """The meta of a result in its channels-last buffer."""
    return Meta(dtype=meta.dtype, shape=tuple(meta.shape[k] for k in TO_CHANNELS_LAST))


__all__ = ["TO_CHANNELS_FIRST", "TO_CHANNELS_LAST", "image", "permuted_meta", "usual"]
