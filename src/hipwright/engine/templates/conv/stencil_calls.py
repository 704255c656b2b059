"""The convolutions and poolings that are offered as stencils (stencil.py), and when the offer is the default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hipwright.engine.ir.expr import indices, own_weight, walk
from hipwright.engine.ir.index import ONE, ZERO, Ind, Ix, divide, ix, modulo, product
from hipwright.engine.lower.conv import (
    POINT,
    TO_CHANNELS_FIRST,
    TO_CHANNELS_LAST,
    ConvAxis,
    Convolution,
    add_bias,
    read_convolution,
    spread,
)
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.lower.windows.pool_windows import is_long
from hipwright.engine.templates.conv.stencil import MAX_WEIGHTS, MIN_THREADS, SIZES, Stencil, tiles
from hipwright.engine.templates.conv.stencil_kernel import write
from hipwright.engine.templates.conv.stencil_turned import (
    is_turned_depthwise,
    lies_channels_last,
    turned_offer,
)
from hipwright.engine.templates.offers import STORE_ABOVE, KernelCall, Offer, Output, permuted, regroup

MAX_PRODUCTS, MAX_PRODUCTS_3D = 64, 256
"""Products per output up to which the stencil is the default. With 25 the float units of an H200 keep up with its
memory; dense two-dimensional convolutions are the library's best case, its three-dimensional and transposed ones are
slow.
"""
NEVER = 1 << 30
"""The weight of an operand that is always computed where it is read."""
TILE_SIDE, MOST_REPEATED = 4, 1.5
"""Outputs of a tile along an axis, and how often a pooling may compute an element that it reads, however much there is
that a channel shares. A round figure, not measured.
"""
READ_ONCE = 64
"""The weight of an element up to which a pooling computes it where windows do not overlap, so that each is read once:
of 4 x 3 x 129 x 256 halves, a square root and what it is of took an H200 a kernel of 1.8 us beside a pooling's of 1.2.
More would be unrolled for all elements of a tile. A round figure, not measured.
"""
MAX_CHANNELS = 4
"""Channels of a group up to which the stencil is the default where the library is good."""
MATRIX_CHANNELS, MATRIX_WORK = 16, 2e8
"""Channels of half types that fill a matrix instruction of the library; operations that a stencil of theirs computes in
15 us, which the library's launches take. Transposed 2 x 4 of stride 2 of 16 channels to 64 took an H200 168 us by a
stencil of float16, 13e12 operations a second, and 44 by the library's kernel for channels-last images; 1 x 1 x 1 of 16
channels to 16 of bfloat16 8 and 3.
"""
DENSE_MAX_CHANNELS, DENSE_MAX_OUTPUTS, DENSE_MAX_PRODUCTS, PHASED_MAX_PRODUCTS = 32, 64, 1024, 128
"""Limits for dense float32 convolutions that are not two-dimensional, or transposed with a stride: up to here direct
tiles reach 31e12 operations a second on an H200 (1 dimension of 31 taps, 3x3x3 of 16 channels; transposed 3x3x3 of 32
channels 16e12), the library in full precision 26 to 28e12 and 6e12. Larger ones have not been measured. Where rows have
a stride, neighbouring threads read apart: 7 taps of stride 2 of 32 channels to 32 took 193 us, the library 74.
"""
NARROW_PHASED_CHANNELS, NARROW_PHASED_PRODUCTS = 64, 256
"""The same limits of transposed ones of three dimensions with a stride to at most NARROW_OUTPUTS, which leave half of a
tile empty: 3 x 3 x 3 of 48 channels to 16 took an H200 1125 us by tiles, 938 and 66 by the library; at the rate of 32
channels, of which a thread holds as many weights, it would take 520, which is an estimate.
"""
POINT_CHANNELS = 128
"""Channels of a group up to which a convolution of one pixel and several groups is a stencil. Fourteen in float32 of 8
to 128 channels a group took an H200 1.5 ms by the library, 0.8e12 operations a second: it reorders image and result by
kernels of 73 us. The stencil reads both as they lie: 57 us the largest, most 12 to 21.
"""
FILLED_OUTPUTS = 64
"""Outputs that fill the library's tiles of float32. Transposed 2 x 2 of stride 1 of 16 channels to 128 took an H200 283
us by a stencil, 12e12 operations a second, and 225 by the library; 2 x 2 x 2 of stride 3 of 3 channels to 256, of fewer
than NARROW_NUMEL outputs in all, 7.1 and 5.2.
"""
NARROW_OUTPUTS, NARROW_TAPS, NARROW_NUMEL = 16, MAX_WEIGHTS // 4 - 1, 8 * MIN_THREADS
"""Float32 convolutions of two dimensions to at most so many outputs a group leave the library's tiles half empty: 3 x 3
of 128 channels to 16 took an H200 1829 us by the library (10.6e12 operations a second) and 688 with what follows by
stencils, 5 x 3 of 32 to 16, transposed, 239 and 86; 4 x 4 of 32 to 16, transposed, no less than 1116 and 1361. So long
as the weights of four outputs fit registers with room, and each thread of a full device has eight outputs.
"""


def _two_axes(axes: Sequence[ConvAxis]) -> list[ConvAxis]:
    return [POINT, *axes] if len(axes) == 1 else list(axes)


# ---------------------------------------------------------------- convolution


KINDS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution")


def convolution(call: KernelCall) -> Offer | None:
    """Direct convolution: depthwise, grouped, dense; transposed in its gather form."""
    out = call.shape(0)
    conv = read_convolution(call.kind, [call.arg(k) for k in range(9)], out)
    if conv.x.dtype not in SIZES or conv.weight.dtype != conv.x.dtype:
        raise NotLowered(f"convolution of {conv.x.dtype}")
    n = len(conv.axes)
    batch = out[:1] if conv.x.rank == n + 2 else [ONE]
    channels = ix(conv.groups * conv.outputs)
    axes = _two_axes(conv.axes)
    stencil = Stencil(
        axes, [*batch, channels], _input_index(conv), _weight_index(conv, n), channels=conv.channels, share=conv.outputs
    )
    if not tiles(stencil):
        raise NotLowered("the window is too large to unroll")
    c = call.c
    x = regroup(c, conv.x, [*batch, ix(conv.groups * conv.channels), *(a.size for a in axes)])
    finish = None if conv.bias is None else add_bias(call.c, conv.bias, n)
    offer = Offer(
        "stencil",
        write,
        [x, conv.weight],
        [Output(stencil.space)],
        default=usual_stencil(call, conv),
        finish=finish,
        data=stencil,
    )
    return turned_offer(call, conv, offer) if is_turned_depthwise(call, conv, x) else offer


def _input_index(conv: Convolution) -> Callable[..., list[Ix]]:
    def index(lead: Sequence[Ix], c: Ix, place: Sequence[Ix]) -> list[Ix]:
        group = divide(lead[1], ix(conv.outputs)) if conv.groups > 1 else ZERO
        return [lead[0], group * conv.channels + c, *place]

    return index


def _weight_index(conv: Convolution, n: int) -> Callable[..., list[Ix]]:
    def index(lead: Sequence[Ix], t: Ix, c: Ix, taps: Sequence[Ix]) -> list[Ix]:
        mine = list(taps)[-n:]
        if not conv.transposed:
            return [lead[1] + t, c, *mine]
        group = divide(lead[1], ix(conv.outputs)) if conv.groups > 1 else ZERO
        within = modulo(lead[1], ix(conv.outputs)) if conv.groups > 1 else lead[1]
        return [group * conv.channels + c, within + t, *mine]

    return index


def usual_stencil(call: KernelCall, conv: Convolution) -> bool:
    """The static rule for stencils: depthwise always; else few products an output, or few outputs in float32."""
    outputs = call.c.numel_hint(call.shape(0))
    if _fills_tiles(conv, outputs, fused=call.read_by_pointwise):
        return False
    return _few_products(conv, outputs) or (_is_narrow(conv) and outputs >= NARROW_NUMEL)


def _fills_tiles(conv: Convolution, outputs: int, *, fused: bool) -> bool:
    """Whether a convolution of float32, transposed or of three dimensions, fills the library's tiles and is no faster
    by a stencil: without phases and of many channels, or small and its result's own kernel. outputs: of all images.
    """
    if conv.x.dtype != "float32" or conv.channels == 1 or conv.outputs < FILLED_OUTPUTS:
        return False
    if conv.transposed and len(conv.axes) < 3:
        return conv.channels >= MATRIX_CHANNELS and all(a.phases == 1 for a in conv.axes)
    return len(conv.axes) == 3 and not conv.transposed and not fused and outputs < NARROW_NUMEL


def _few_products(conv: Convolution, outputs: int) -> bool:
    """Whether there are few channels and few products an output. outputs: of all images."""
    n, products = len(conv.axes), conv.channels * math.prod(a.kernel / a.phases for a in conv.axes)
    if conv.channels == 1 or _library_is_slow(conv, n, products) or _mixes_groups(conv):
        return True
    library_weak = (n == 3 or conv.transposed) and not _fills_matrix_units(conv, 2.0 * outputs * products)
    return conv.channels <= MAX_CHANNELS * (4 if library_weak else 1) and products <= (
        MAX_PRODUCTS_3D if library_weak else MAX_PRODUCTS
    )


def _mixes_groups(conv: Convolution) -> bool:
    """Whether each result is a product of one pixel's channels, of one group of several."""
    point = all(a.kernel == 1 and a.padding == 0 and not a.transposed for a in conv.axes)
    return point and conv.groups > 1 and conv.channels <= POINT_CHANNELS


def _fills_matrix_units(conv: Convolution, work: float) -> bool:
    """Whether the library computes a convolution of half types faster though it is transposed or of three dimensions:
    as a product of matrices, or from channels-last images of two dimensions. work: its operations.
    """
    if SIZES[conv.x.dtype] != 2 or conv.channels < MATRIX_CHANNELS:
        return False
    return max(a.kernel for a in conv.axes) == 1 or (len(conv.axes) == 2 and work >= MATRIX_WORK)


def _is_narrow(conv: Convolution) -> bool:
    """Whether the library's tiles of a float32 convolution of two dimensions are mostly empty. A transposed convolution
    of stride 1 is one too.
    """
    taps = math.prod(a.kernel for a in conv.axes)
    few = conv.outputs <= NARROW_OUTPUTS and conv.outputs % 4 == 0 and 1 < taps <= NARROW_TAPS
    return few and conv.x.dtype == "float32" and len(conv.axes) == 2 and all(a.phases == 1 for a in conv.axes)


def _library_is_slow(conv: Convolution, n: int, products: float) -> bool:
    """Whether this is a float32 convolution for which the library has only slow kernels."""
    if conv.x.dtype != "float32" or conv.outputs % 4 or max(a.kernel for a in conv.axes) == 1:
        return False
    few = conv.channels <= DENSE_MAX_CHANNELS and conv.outputs <= DENSE_MAX_OUTPUTS
    if conv.transposed and max(a.phases for a in conv.axes) > 1:
        narrow = n == 3 and conv.outputs <= NARROW_OUTPUTS and conv.channels <= NARROW_PHASED_CHANNELS
        narrow = narrow and conv.axes[-2].kernel * conv.axes[-1].kernel <= NARROW_TAPS
        return (few and products <= PHASED_MAX_PRODUCTS) or (narrow and products <= NARROW_PHASED_PRODUCTS)
    dense = n != 2 and not conv.transposed and conv.axes[-1].stride == 1
    return few and dense and products <= DENSE_MAX_PRODUCTS


# ---------------------------------------------------------------- pooling


def _pool(call: KernelCall, n: int, axes: list[ConvAxis], **how: Any) -> Offer | None:
    """Pooling over the last n axes; all axes before them are merged."""
    x: Tensor = call.args[0]
    if x.dtype not in SIZES:
        raise NotLowered(f"pooling of {x.dtype}")
    outer, turned = x.shape[: x.rank - n], lies_channels_last(call.c, x, n)
    lead = [product(outer[:-1]), outer[-1]] if turned else [product(outer)]
    stencil = Stencil(_two_axes(axes), lead, lambda at, c, place: [*at, *place], channels_last=turned, **how)
    if not tiles(stencil):
        raise NotLowered("the window is too large to unroll")
    flat = regroup(call.c, x, [*lead, *(a.size for a in stencil.axes)])
    stencil.positions = len(call.outs) > 1 and call.outs[1] is not None
    stencil.stored_last = turned and call.wanted_last and len(call.outs) == 1
    shape = stencil.space if stencil.stored_last else []
    outputs = [Output(stencil.space, shape=shape) if meta is not None else None for meta in call.outs]
    window, apart = math.prod(a.kernel for a in axes), all(a.stride >= a.span(1) for a in axes)
    default = window > 1 and not is_long(window, call.c.numel_hint(stencil.space), apart=apart)
    offer = Offer("stencil", write, [flat], outputs, default=default, whole=stencil.positions, data=stencil)
    repeated = math.prod(a.span(TILE_SIDE) / (TILE_SIDE * a.stride) for a in axes)
    limit = READ_ONCE if apart else STORE_ABOVE
    wanted = repeated <= MOST_REPEATED and bool(call.choices.get("pool_prologue", True))
    if wanted and _weight_of_elements(call, flat, len(lead)) <= limit:
        offer.store_above = NEVER
    offer.stored_order = TO_CHANNELS_LAST if turned else ()
    if stencil.stored_last:
        offer.finish, offer.suffix = (lambda stored: permuted(call.c, stored, TO_CHANNELS_FIRST)), "last"
    return offer


def _weight_of_elements(call: KernelCall, x: Tensor, lead: int) -> int:
    """The weight of what is computed for each element of a plane; what all its elements share is computed once. lead:
    the dimensions that number planes.

    So a batch norm in evaluation, whose scale and shift are a channel's, is computed where its elements are read. A
    loop weighs more than any limit.
    """
    index = call.c.probe(x.shape)
    along = {atom for place in index[lead:] for atom in place.atoms()}
    total, shared = 0, dict[int, bool]()
    for e in walk([x.at(index)]):  # operands first
        moves = any(atom in along or isinstance(atom, Ind) for place in indices(e) for atom in place.atoms())
        shared[e.id] = not moves and e.op != "loop" and all(shared[a.id] for a in e.args)
        total += 0 if shared[e.id] else READ_ONCE + 1 if e.op == "loop" else own_weight(e)
    return total


def _pool_axes(call: KernelCall, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list[ConvAxis]:
    x: Tensor = call.args[0]
    sizes, shape = spread(kernel, n), call.shape(0)
    steps = spread(stride, n) if stride not in (None, []) else sizes
    return [
        ConvAxis(*each)
        for each in zip(
            x.shape[-n:], shape[-n:], sizes, steps, spread(padding, n, 0), spread(dilation, n, 1), strict=True
        )
    ]


def max_pool(call: KernelCall) -> Offer | None:
    """The largest of each window, and its position; NaN wins over numbers."""
    n = int(call.kind[8])
    axes = _pool_axes(
        call,
        n,
        call.arg(1, "kernel_size"),
        call.arg(2, "stride"),
        call.arg(3, "padding", 0),
        call.arg(4, "dilation", 1),
    )
    return _pool(call, n, axes, combine="max", whole=_lie_inside(axes, call.arg(5, "ceil_mode", False)))


def _lie_inside(axes: Sequence[ConvAxis], ceil: bool) -> bool:
    """Whether every window lies inside the input. ceil: the last ones may begin where no whole window is left."""
    return not ceil and not any(a.padding for a in axes)


def avg_pool(call: KernelCall) -> Offer | None:
    """The mean of each window, over what is inside or over the padded window."""
    n = int(call.kind[8])
    axes = _pool_axes(call, n, call.arg(1, "kernel_size"), call.arg(2, "stride"), call.arg(3, "padding", 0), 1)
    ceil, include, divisor = (
        call.arg(4, "ceil_mode", False),
        call.arg(5, "count_include_pad", True),
        call.arg(6, "divisor_override"),
    )
    whole = _lie_inside(axes, ceil)
    if divisor is not None:
        return _pool(call, n, axes, scale=1.0 / float(divisor), whole=whole)
    if (ceil or any(a.padding for a in axes)) and not include:
        return _pool(call, n, axes, count="inside")
    if ceil:
        return _pool(call, n, axes, count="padded")
    return _pool(call, n, axes, scale=1.0 / math.prod(a.kernel for a in axes), whole=whole)


def adaptive_pool(call: KernelCall) -> Offer | None:
    """Windows of one size, when input sizes are multiples of output sizes; pooling to size 1 is a row reduction."""
    x: Tensor = call.args[0]
    n = int(call.kind[-2])
    sizes, shape = [s.value for s in x.shape[-n:]], [s.value for s in call.shape(0)[-n:]]
    if all(s == 1 for s in shape):
        raise NotLowered("a reduction of whole rows")
    axes = []
    for size, out in zip(sizes, shape, strict=True):
        if size is None or out is None or size % out:
            raise NotLowered("windows of several sizes")
        axes.append(ConvAxis(ix(size), ix(out), size // out, size // out))
    if "max" in call.kind:
        return _pool(call, n, axes, combine="max", whole=True)
    return _pool(call, n, axes, scale=1.0 / math.prod(a.kernel for a in axes), whole=True)
