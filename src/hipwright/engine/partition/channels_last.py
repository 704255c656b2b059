"""Channels-last images for the library's convolutions: where they are the default, and how one is found or made.

Tensor cores multiply along channels, so the library's half-precision convolutions read channels-last images and permute
others before and after. The engine's kernels permute at less cost, as part of what they compute around the convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hipwright.capture.graph import Meta, Node
from hipwright.engine.ir.index import Ix
from hipwright.engine.ir.shapes import flatten
from hipwright.engine.lower.conv import TO_CHANNELS_FIRST, TO_CHANNELS_LAST
from hipwright.engine.rewrite.forms import conv_layout
from hipwright.engine.rewrite.forms.conv_layout import KINDS
from hipwright.engine.templates.conv.stencil_turned import lies_channels_last
from hipwright.engine.templates.offers import permuted

if TYPE_CHECKING:
    from hipwright.engine.lower.context import LoweringContext
    from hipwright.engine.lower.values import Tensor


def usual(c: LoweringContext, node: Node, x: Tensor, weight: Tensor, between: bool = False) -> bool | None:
    """Whether channels last is the default of a convolution; None where it is not offered. between: as in
    rewrite/forms/conv_layout.py.
    """
    out, sizes = node.outs[0], [s.value for s in weight.shape]
    if out is None or not conv_layout.is_candidate(node) or x.rank != 4 or None in sizes:
        return None
    if x.dtype not in ("float16", "bfloat16", "float32"):
        return None
    image, made = ([c.hint(s) for s in shape] for shape in (x.shape, c.shape(out)))
    known = conv_layout.Sizes(x.dtype, image, made, [int(s or 0) for s in sizes])
    return conv_layout.usual(node, known, between)


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


def stored(c: LoweringContext, x: Tensor, name: str, *, between: bool) -> Tensor:
    """An image that is stored channels last, by a kernel that turns it where it is computed of others. between: only
    kernels read it.
    """
    alone = not lies_channels_last(c, x, 2, least=2)
    kept = c.realise(permuted(c, x, TO_CHANNELS_LAST), name, between=between, alone=alone)
    return permuted(c, kept, TO_CHANNELS_FIRST)


def permuted_meta(meta: Meta) -> Meta:
    """The meta of a result in its channels-last buffer."""
    return Meta(dtype=meta.dtype, shape=tuple(meta.shape[k] for k in TO_CHANNELS_LAST))


__all__ = ["KINDS", "TO_CHANNELS_FIRST", "TO_CHANNELS_LAST", "image", "permuted_meta", "stored", "usual"]
