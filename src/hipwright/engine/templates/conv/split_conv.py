"""Float32 convolutions by matrix units of half types: implicit products of images and weights in two parts.

out[(image, position), co] = sum over (tap, channel) of input times weight, by the tiles of gemm/split_precision.py.
Rows are positions, a chunk of k is 32 channels of one tap, neighbours in the parts of an image (split_image.py).
A tile of windows is copied to LDS as it is loaded, never stored (Chetlur et al., "cuDNN", 2014). A transposed
convolution is divided into phases, as in implicit_gemm.py: no product with a zero between inputs is computed.
"""

from __future__ import annotations

from math import ceil, inf, prod

from hipwright.engine.ir.expr import E
from hipwright.engine.ir.index import ONE, ZERO, Ix, divide, ix, modulo, product
from hipwright.engine.ir.shapes import flatten, unflatten
from hipwright.engine.knobs import SPLIT
from hipwright.engine.lower.conv import Convolution, add_bias, read_convolution
from hipwright.engine.lower.values import Index, NotLowered, Tensor
from hipwright.engine.templates.conv import split_conv_kernel
from hipwright.engine.templates.conv.implicit_gemm import library_rate
from hipwright.engine.templates.conv.window import Window, phase_positions, taps_of
from hipwright.engine.templates.gemm import split_precision
from hipwright.engine.templates.gemm.cost import LIBRARY_RATE, MARGIN
from hipwright.engine.templates.gemm.split_parts import CHUNK
from hipwright.engine.templates.gemm.tiling import LAUNCH, MEMORY_RATE, ProductShape
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

MAX_TAPS = 1024
"""Of a phase. Larger windows are not tried."""
LEAST_CHANNELS, LEAST_OUTPUTS = 12, 24
"""Of a group: with fewer, most of a chunk or a tile is empty."""
IMAGE_RATE = 2.0e12
"""Bytes a second of the kernels that split images: read twice, written once."""
SMALL_RATE, LARGE_WORK = 28e12, 8e9
"""Operations a second that the library reaches in layers of fewer than so many: round figures of an H100."""
TRANSPOSED_RATE = 15e12
"""Those in transposed ones: 2 x 2 of stride 1 of 16 channels to 128 took an H200 225 us, and 4 x 4 and 3 x 3 of groups
of 48 and 32 channels reached 9e12 and 7e12.
"""
NEVER_STORED = 1 << 20
LEAST_REDUCED = 65
"""Outputs from which reductions of the channels are begun by the kernel: its tiles are 128 wide then, not 64."""


def split_convolution(call: KernelCall) -> Offer | None:
    """Convolutions in float32 with enough channels; transposed ones with strides without dilation."""
    out = call.shape(0)
    conv = read_convolution(call.kind, [call.arg(k) for k in range(9)], out)
    n = len(conv.axes)
    if conv.x.dtype != "float32" or conv.weight.dtype != "float32" or ZERO in out:
        return None
    if conv.channels < LEAST_CHANNELS or conv.outputs < LEAST_OUTPUTS:
        return None
    if prod(taps_of(a) for a in conv.axes) > MAX_TAPS:
        raise NotLowered("a window of so many taps")
    if any(a.phases > 1 and a.dilation > 1 for a in conv.axes):
        raise NotLowered("a transposed convolution with a stride and dilation")
    batch = out[0] if conv.x.rank == n + 2 else ONE
    window = _window(conv, batch)
    x = regroup(call.c, conv.x, [batch, ix(conv.groups * conv.channels), product([a.size for a in conv.axes])])
    finish = None if conv.bias is None else add_bias(call.c, conv.bias, n)
    offer = Offer(
        "split",
        split_conv_kernel.write,
        [_weights(call, conv, window), x],
        [Output(window.shape)],
        bool(call.choices.get(SPLIT)) and _beats_library(call, conv, window),
        finish,
        store_above=(NEVER_STORED, 16),
        data=window,
    )
    if window.groups * window.phases == 1:
        offer.row_dim, offer.row_least = 1, LEAST_REDUCED
    return offer


def _window(conv: Convolution, batch: Ix) -> Window:
    """The product: k counts taps of a phase, and in each of them whole chunks of channels."""
    phases = prod(a.phases for a in conv.axes)
    space = [ix(conv.groups * phases), ix(conv.outputs), batch * product(phase_positions(conv.axes))]
    depth = prod(taps_of(a) for a in conv.axes) * chunks(conv.channels) * CHUNK
    every = list(range(len(conv.axes)))
    return Window(
        space,
        ix(depth),
        "float32",
        batch,
        conv.axes,
        conv.groups,
        conv.channels,
        conv.outputs,
        conv.transposed,
        False,
        every,
    )


def chunks(channels: int) -> int:
    """The chunks of a group's channels."""
    return ceil(channels / CHUNK)


def _weights(call: KernelCall, conv: Convolution, window: Window) -> Tensor:
    """[group and phase, output, (tap, channel in whole chunks)], zero where a phase or a chunk has fewer."""
    c, phases, padded = call.c, window.phases, chunks(conv.channels) * CHUNK
    taps = [ix(taps_of(a)) for a in conv.axes]
    flat = regroup(c, conv.weight, [*conv.weight.shape[:2], product([ix(a.kernel) for a in conv.axes])])

    def at(i: Index) -> E:
        group, phase = divide(i[0], ix(phases)), modulo(i[0], ix(phases))
        places = unflatten([ix(a.phases) for a in conv.axes], phase)
        tap, channel = divide(i[2], ix(padded)), modulo(i[2], ix(padded))
        found, tests = [], [c.arena.compare(channel, "<", ix(conv.channels))]
        for a, place, t in zip(conv.axes, places, unflatten(taps, tap), strict=True):
            first = modulo(place + a.padding, ix(a.phases)) if a.phases > 1 else ZERO
            found.append(first + t * a.phases)
            tests.append(c.arena.compare(found[-1], "<", ix(a.kernel)))
        window_at = flatten([ix(a.kernel) for a in conv.axes], found)
        if conv.transposed:
            index = [group * conv.channels + channel, i[1], window_at]
        else:
            index = [group * conv.outputs + i[1], channel, window_at]
        return c.arena.guard(c.arena.both(*tests), flat.at(index), c.arena.const(0, "float"))

    return c.tensor("float32", [window.space[0], window.space[1], window.k], at)


def _beats_library(call: KernelCall, conv: Convolution, window: Window) -> bool:
    """Whether the tiles and the kernels that split the images are estimated faster than the library."""
    groups, outputs, positions = call.hints(window.space)
    shape = ProductShape(groups, positions, outputs, call.c.hint(window.k), "float32")
    padded = chunks(conv.channels) / (conv.channels / CHUNK)
    numel = call.c.numel_hint(conv.x.shape)
    splitting = 2 * LAUNCH + (8.0 + 4.0 * padded) * numel / IMAGE_RATE
    here = split_precision.seconds(shape, (True, True)) + splitting
    made = call.c.numel_hint(call.shape(0))
    work = 2.0 * made * conv.channels * prod(a.kernel / a.phases for a in conv.axes)
    known = library_rate(conv)
    if known == inf:
        dense = LIBRARY_RATE["float32"] if work >= LARGE_WORK else SMALL_RATE
        known = TRANSPOSED_RATE if conv.transposed else dense
    follower = 8.0 * made / MEMORY_RATE if call.read_by_pointwise else 0.0
    return here < MARGIN * (LAUNCH + max(work / known, 4.0 * (numel + made) / MEMORY_RATE) + follower)


__all__ = ["split_convolution"]
