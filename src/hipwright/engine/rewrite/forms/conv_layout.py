"""Where the library's convolutions read and write channels-last images by default, by their sizes alone.

Tensor cores multiply along channels, so the library's half-precision convolutions read channels-last images and permute
others before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from hipwright.capture.graph import Node, short
from hipwright.engine.ir.expr import HALVES
from hipwright.engine.lower.conv import spread
from hipwright.engine.rewrite.node_writer import NodeWriter
from hipwright.engine.rewrite.pinned_sizes import hint
from hipwright.engine.templates.conv.stencil_calls import MAX_CHANNELS, MAX_PRODUCTS

KINDS = ("conv2d", "conv_transpose2d")
PACK, LEAST_CHANNELS = 8, 16
"""Channels that one 16-byte read takes, and that fill a matrix instruction. To 16 outputs the library's permutations of
96, 128 and 256 channels took an H200 136, 108 and 220 us, a kernel's 75, 66 and 130.
"""
LEAST_WORK, LEAST_BYTES = 2e9, 1 << 23
"""Operations from which a convolution is longer than two launches (a round figure for an H200's matrix units); bytes of
image and result from which what the library permutes is: 25 MB took 23 us of 46, 9 MB 12.5 of 22.6.
"""
WHOLE_PIXEL = 4
"""Channels of a pixel for which the library has kernels of their own, for a network's first layer."""
NARROW_OUTPUTS, NARROW_INPUTS, FLOAT_WORK = 16, 64, 3e8
"""Transposed convolutions of float32 and stride 1 to few outputs, for which it does, too: 2 x 3 of 128 channels to 16,
0.4e9 operations, took 406 us so, and 27 channels last. The least work is a round figure, not measured.
"""


@dataclass(frozen=True)
class Sizes:
    """What decides the layout. image, made: the captured sizes [n, c, h, w] of what is read and written; weight: as it
    lies.
    """

    dtype: str
    image: Sequence[int]
    made: Sequence[int]
    weight: Sequence[int]


def is_candidate(node: Node) -> bool:
    """Whether a node is a convolution of images, without groups, that names its paddings by numbers."""
    groups = node.args[6] if len(node.args) > 6 else 1
    return short(node.op) in KINDS and node.op.endswith((".default", ".input")) and groups == 1


def usual(node: Node, sizes: Sizes, between: bool = False) -> bool | None:
    """Whether channels last is the default of a convolution; None where it is not offered.

    between: kernels that run in any case make the image and read the result, so that they can permute at no launch.
    """
    transposed = short(node.op) == "conv_transpose2d"
    outside, inside, *taps = sizes.weight
    if transposed:
        outside, inside = inside, outside
    pixels = sizes.image if transposed else sizes.made
    work = 2.0 * prod(pixels[k] for k in (0, 2, 3)) * outside * inside * prod(taps)
    unit = prod(spread(node.args[3] if len(node.args) > 3 else None, 2, 1)) == 1
    if sizes.dtype == "float32":
        narrow = transposed and unit and outside <= NARROW_OUTPUTS and outside % 4 == 0 and prod(taps) > 1
        return work >= FLOAT_WORK if narrow and inside >= NARROW_INPUTS else None
    if is_product(node, taps) or min(outside, inside) < 2:
        return None
    if outside < PACK and between and inside >= LEAST_CHANNELS and inside % PACK == 0:
        return True  # the library pads the result, of which there is little, in either layout
    if outside % PACK:
        return None
    permuted_bytes = 2 * (prod(sizes.image) + prod(sizes.made))
    heavy = work >= LEAST_WORK or permuted_bytes >= LEAST_BYTES
    if inside < LEAST_CHANNELS and not transposed:
        return None if outside < LEAST_CHANNELS or _is_stencil(inside, taps) else heavy
    if min(outside, inside) < LEAST_CHANNELS or inside % PACK:
        return None
    return between or heavy


def _is_stencil(inside: int, taps: Sequence[int]) -> bool:
    """Whether a convolution of few inputs is a kernel of the engine by default.

    Of the others the library permutes image and result, or transforms planes: 7 x 7 of 3 channels to 16 took an H200
    366 us of 128 x 128 pixels so and 124 channels last, and of stride 2 to 64 the permutations took 234 of 402.
    """
    return inside <= MAX_CHANNELS and inside * prod(taps) <= MAX_PRODUCTS


def filled(node: Node, sizes: Sizes) -> tuple[int, bool] | None:
    """(how many channels of zeros fill the vectors that the library reads of a half convolution, whether they are the
    default: where the image so is channels last by default); None where none lack, or that is not offered.

    Pixels of up to WHOLE_PIXEL channels are filled to so many, others to a multiple of PACK.
    """
    outside, inside, *taps = sizes.weight
    lacking = -inside % (PACK if inside > WHOLE_PIXEL else WHOLE_PIXEL)
    if short(node.op) != "conv2d" or sizes.dtype not in HALVES or not lacking or _is_stencil(inside, taps):
        return None
    image = [sizes.image[0], inside + lacking, *sizes.image[2:]]
    found = usual(node, replace(sizes, image=image, weight=[outside, inside + lacking, *taps]))
    return None if found is None or inside < 2 else (lacking, found)


def sizes_of(writer: NodeWriter, node: Node) -> Sizes | None:
    """What decides the layout of a convolution of four dimensions, with a weight of known sizes; else None."""
    if not is_candidate(node) or node.kwargs or node.outs[0] is None:
        return None
    x, weight, out = writer.meta(node.args[0]), writer.meta(node.args[1]), node.outs[0]
    if x is None or weight is None or len(x.shape) != 4 or not all(isinstance(size, int) for size in weight.shape):
        return None
    image, made = ([hint(size, writer.symbols) for size in shape] for shape in (x.shape, out.shape))
    return Sizes(x.dtype, image, made, [int(size) for size in weight.shape])


def is_product(node: Node, taps: Sequence[int]) -> bool:
    """Whether each result is a product of one position's channels, which the library computes as images lie."""
    stride, padding = [*node.args[3:5], None, None][:2]
    return prod(taps) == 1 and prod(spread(stride, 2, 1)) == 1 and not any(spread(padding, 2, 0))


__all__ = ["KINDS", "PACK", "Sizes", "filled", "is_candidate", "is_product", "sizes_of", "usual"]
