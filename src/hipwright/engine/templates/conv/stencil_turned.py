"""Stencils of channels-last images: neighbouring threads take neighbouring channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.engine.ir.expr import walk
from hipwright.engine.ir.index import ZERO, Var
from hipwright.engine.lower.context import LoweringContext
from hipwright.engine.lower.conv import TO_CHANNELS_FIRST, Convolution
from hipwright.engine.lower.values import Tensor
from hipwright.engine.templates.access import has_unit_stride
from hipwright.engine.templates.offers import KernelCall, Offer, Output, permuted

MANY_CHANNELS = 32
"""Channels with which a wave reads whole lines of a channels-last image. Averages over 3 x 3 of 64 channels of 32 x 32
took an H200 333 us with threads along the image's rows, each of which reads a line of its own.
"""
TAPS_FIRST = [2, 3, 0, 1]
"""Dimensions of a depthwise convolution's weights with neighbouring channels side by side."""


def lies_channels_last(c: LoweringContext, x: Tensor, n: int, least: int = MANY_CHANNELS) -> bool:
    """Whether neighbours in memory of what an image is computed from are neighbours along the dimension before the last
    n, of which there are at least so many: what a channels-last convolution leaves. What all channels share may lie in
    any order.
    """
    if x.rank <= n or c.hint(x.shape[-n - 1]) < least:
        return False
    places = c.probe(x.shape)
    channel, last = ({a.name for a in places[k].atoms() if isinstance(a, Var)} for k in (-n - 1, -1))
    loads = [e.attr[1] for e in walk([x.at(places)]) if e.op == "load"]
    varies = [(p, {a.name for a in p.atoms() if isinstance(a, Var)}) for p in loads]
    along = [p for p, names in varies if last & names and channel & names]
    return bool(along) and all(has_unit_stride(p, name) for p in along for name in channel)


def is_turned_depthwise(call: KernelCall, conv: Convolution, x: Tensor) -> bool:
    """Whether this is a depthwise convolution of a channels-last image, by a stencil that neighbouring threads compute
    for neighbouring channels: its weights are a parameter, whose copy in the order of the taps is made once.
    """
    plain = conv.channels == conv.outputs == 1 and conv.x.rank == 4 and not conv.transposed
    chosen = call.choices.get(f"call:{call.node.name}", "stencil") == "stencil"
    return plain and chosen and conv.weight.buffer in call.c.parameters and lies_channels_last(call.c, x, 2)


def turned_offer(call: KernelCall, conv: Convolution, offer: Offer) -> Offer:
    """The offer with threads along channels, and with channels last in its result where readers want that."""
    c, stencil, finish = call.c, offer.data, offer.finish
    taps = c.realise(permuted(c, conv.weight, TAPS_FIRST), f"{c.origin}_taps", between=False, alone=True)
    stencil.channels_last, stencil.stored_last = True, call.wanted_last
    stencil.weights = lambda lead, t, channel, places: [*places[-2:], lead[1] + t, ZERO]
    offer.operands, offer.packed = [offer.operands[0], taps], (str(taps.buffer),)
    offer.outputs = [Output(stencil.space, shape=stencil.space if stencil.stored_last else [])]
    if stencil.stored_last:
        offer.suffix = "last"
        offer.finish = lambda stored: _finished(finish, permuted(c, stored, TO_CHANNELS_FIRST))
    return offer


def _finished(finish: Callable[[Tensor], Any] | None, stored: Tensor) -> Any:
    return stored if finish is None else finish(stored)


__all__ = ["is_turned_depthwise", "lies_channels_last", "turned_offer"]
