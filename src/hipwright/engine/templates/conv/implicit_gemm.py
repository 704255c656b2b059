"""Convolutions as implicit matrix products: out[co, (image, position)] = sum over (ci, tap) of weight times input.

The tiles are those of gemm/tiled.py; the tile of the inputs is gathered while it is loaded to LDS, so that the matrix
of windows is never in memory (Chetlur et al., "cuDNN: efficient primitives for deep learning", 2014). Zero padding,
strides, dilation and groups, one to three axes. A transposed convolution is divided into phases, the outputs `o` of one
`o % stride` along each axis: a phase is a convolution of stride 1 with the taps that belong to it, so that no product
with one of the zeros between the inputs is computed, and nothing is added atomically.
"""

from __future__ import annotations

from math import ceil, inf, prod

from hipwright.engine.ir.expr import indices, walk
from hipwright.engine.ir.index import ONE, ZERO, Fn, Ix, ix, product
from hipwright.engine.lower.conv import ConvAxis, Convolution, add_bias, read_convolution
from hipwright.engine.lower.values import NotLowered, Tensor
from hipwright.engine.templates.conv import implicit_gemm_kernel
from hipwright.engine.templates.conv.stencil_calls import usual_stencil
from hipwright.engine.templates.conv.window import Window, phase_positions
from hipwright.engine.templates.gemm import tiling
from hipwright.engine.templates.gemm.scope import MFMA
from hipwright.engine.templates.offers import KernelCall, Offer, Output, probe, regroup

MAX_TAPS = 343
"""The table of taps, at most 40 bytes each, is in LDS beside the tiles, and NVIDIA gives a block 48 KiB."""
TEMPLATE_RATE = 28e12
"""Operations a second of full tiles on the vector units: 18 to 20e12 measured on an H200 in tiles of 32 and 48 rows."""
LIBRARY_UNEVEN_RATE, LIBRARY_LARGE_RATE, LIBRARY_PHASED_RATE = 21e12, 14e12, 6e12
"""What the library reached there in float32: dilated 5x3, 1x7x7 of 3 channels, transposed 3x3x3 of stride 2 (3x3x3 of
16 channels: 26e12, out of reach of tiles with so few rows; with TF32, which no verification of float32 accepts, 53e12).
"""
HALF_RATE, HALF_VECTOR_RATE, MATRIX_SIDE = 40e12, 20e12, 64
"""Operations a second of tiles of half types, of at least 64 x 64 on matrix units: an H200 reached 54e12 for 1 x 1 of
64 channels to 128, and 38e12 for 1 x 1 of stride 2 of 32 channels to 256, which memory bounds; of smaller tiles 22e12.
"""
HALF_UNEVEN_RATE = 8e12
"""The same where planes of outputs are no multiple of 16 bytes, so that none is stored by vectors: 1 x 1 of stride 3 of
16 channels of 32768 to 256 took an H200 94 us.
"""
HALF_READ_RATE, LIBRARY_HALF_READ_RATE = 2.6e12, 2.0e12
"""Bytes a second there: the second convolution took 14 us, the library 12.5 and 23 for its own permutations."""
LARGE_SIDE, LARGE_CHANNELS = 5, 16
"""Taps of a large window along an axis; the channels from which the library is no slower in three dimensions for them:
transposed 4 x 5 x 5 of 64 channels to 32 took an H200 457 us by the library (26e12 operations a second), and 792 here.
"""
LIBRARY_VOLUME_RATE = 26e12
MARGIN = 0.95


def implicit_product(call: KernelCall) -> Offer | None:
    """Any convolution in float32, float16 or bfloat16."""
    out = call.shape(0)
    conv = read_convolution(call.kind, [call.arg(k) for k in range(9)], out)
    n = len(conv.axes)
    if conv.x.dtype not in MFMA or conv.weight.dtype != conv.x.dtype:
        return None
    if prod(a.kernel for a in conv.axes) > MAX_TAPS:
        raise NotLowered("a window of so many taps")
    if not conv.channels or not conv.outputs or ZERO in out:
        return None
    batch = out[0] if conv.x.rank == n + 2 else ONE
    window, x = _window(call, conv, batch)
    finish = None if conv.bias is None else add_bias(call.c, conv.bias, n)
    beats = _beats_library if conv.x.dtype == "float32" else _beats_permutations
    default = not usual_stencil(call, conv) and beats(call, conv, window)
    return Offer(
        "implicit",
        implicit_gemm_kernel.write,
        [_weights(call, conv), x],
        [Output(window.shape)],
        default,
        finish,
        data=window,
    )


def _window(call: KernelCall, conv: Convolution, batch: Ix) -> tuple[Window, Tensor]:
    """(the product, the inputs as it reads them)."""
    lead, sizes = [batch, ix(conv.groups * conv.channels)], [a.size for a in conv.axes]
    x = regroup(call.c, conv.x, [*lead, product(sizes)])
    flattened = not _needs_coordinates(call, x)
    if not flattened:
        x = regroup(call.c, conv.x, [*lead, *sizes])
    padded_axes = [k for k, a in enumerate(conv.axes) if _is_padded(call, a)]
    phases, taps = prod(a.phases for a in conv.axes), prod(a.kernel for a in conv.axes)
    space = [ix(conv.groups * phases), ix(conv.outputs), batch * product(phase_positions(conv.axes))]
    window = Window(
        space,
        ix(conv.channels * taps),
        conv.x.dtype,
        batch,
        conv.axes,
        conv.groups,
        conv.channels,
        conv.outputs,
        conv.transposed,
        flattened,
        padded_axes,
    )
    return window, x


def _needs_coordinates(call: KernelCall, x: Tensor) -> bool:
    """Whether an element's index must be decoded to read it (a permuted image, a scale of each column)."""
    return any(isinstance(a, Fn) for e in walk([probe(call.c, x)]) for p in indices(e) for a in p.atoms())


def _is_padded(call: KernelCall, a: ConvAxis) -> bool:
    """Whether a tap may be outside the input."""
    last = call.c.hint(a.size) - a.dilation * (a.kernel - 1) - 1
    return a.transposed or a.padding > 0 or call.c.hint(a.out) != last // a.stride + 1


def _weights(call: KernelCall, conv: Convolution) -> Tensor:
    """[groups, outputs, (channel, tap)], or of a transposed convolution [inputs, outputs, taps]."""
    taps = prod(a.kernel for a in conv.axes)
    if conv.transposed:
        return regroup(call.c, conv.weight, [ix(conv.groups * conv.channels), ix(conv.outputs), ix(taps)])
    return regroup(call.c, conv.weight, [ix(conv.groups), ix(conv.outputs), ix(conv.channels * taps)])


# ---------------------------------------------------------------- the static rule


def library_rate(conv: Convolution) -> float:
    """Operations a second that a library is assumed to reach in float32; `inf` where it is not to be beaten.

    Dense two-dimensional convolutions are left to the library. It has no good kernels for dilated windows that are not
    square, nor, in three dimensions or transposed, for large, uneven or dilated windows, or phases.
    """
    sides = [a.kernel for a in conv.axes]
    uneven, dilated = len(set(sides)) > 1, any(a.dilation > 1 and a.kernel > 1 for a in conv.axes)
    if max(sides) == 1:
        return inf
    if len(sides) < 3 and not conv.transposed:
        return LIBRARY_UNEVEN_RATE if uneven and dilated else inf
    if len(sides) == 3 and any(a.phases > 1 for a in conv.axes):
        return LIBRARY_PHASED_RATE
    if max(sides) >= LARGE_SIDE:
        many = len(sides) == 3 and not dilated and conv.channels >= LARGE_CHANNELS
        return LIBRARY_VOLUME_RATE if many else LIBRARY_LARGE_RATE
    return LIBRARY_UNEVEN_RATE if uneven or dilated else inf


def _beats_library(call: KernelCall, conv: Convolution, window: Window) -> bool:
    """Whether the tiles with their epilogue are estimated faster than the library and kernels for the epilogue."""
    rate = library_rate(conv)
    if rate == inf:
        return False
    rows, columns, share = _tile(call, window)
    intensity = tiling.Tiling(rows, columns, tiling.DEPTH["float32"]).intensity
    rate_here = TEMPLATE_RATE * share * min(1.0, intensity / tiling.FULL_INTENSITY)
    outputs = call.c.numel_hint(call.shape(0))
    work = _work(conv, outputs)
    follower = 8.0 * outputs / tiling.MEMORY_RATE if call.read_by_pointwise else 0.0
    return work / rate_here < MARGIN * (work / rate + follower)


def _beats_permutations(call: KernelCall, conv: Convolution, window: Window) -> bool:
    """Whether the tiles of half types, which read images as they lie, are estimated faster than the library's
    convolution of a channels-last image, a kernel that permutes the image, and one for the epilogue.

    So they are for few products an output; a product of one position's channels the library computes as images lie.
    """
    if all((a.kernel, a.stride, a.padding) == (1, 1, 0) for a in conv.axes):
        return False
    rows, columns, share = _tile(call, window)
    rate = HALF_RATE if min(rows, columns) >= MATRIX_SIDE else HALF_VECTOR_RATE
    if prod(call.c.hint(a.out) for a in conv.axes) % 8:
        rate = HALF_UNEVEN_RATE
    image, outputs = call.c.numel_hint(conv.x.shape), call.c.numel_hint(call.shape(0))
    steps = ceil(call.c.hint(window.k) / tiling.DEPTH[conv.x.dtype]) + tiling.BLOCK_OVERHEAD_STEPS
    moved = 2.0 * (image + outputs) / HALF_READ_RATE
    here = tiling.LAUNCH + max(_work(conv, outputs) / (rate * share), moved, steps * tiling.STEP_LATENCY)
    permuted = tiling.LAUNCH + 4.0 * image / tiling.MEMORY_RATE
    library = tiling.LAUNCH + 2.0 * (image + outputs) / LIBRARY_HALF_READ_RATE
    follower = 4.0 * outputs / tiling.MEMORY_RATE if call.read_by_pointwise else 0.0
    return here < MARGIN * (permuted + library + follower)


def _tile(call: KernelCall, window: Window) -> tuple[int, int, float]:
    """(rows, columns, the share of the device's units, and of the tiles' elements, that compute outputs)."""
    batch, m, n = call.hints(window.space)
    rows, columns = tiling.default_tile(batch, m, n)
    blocks = batch * ceil(m / rows) * ceil(n / columns)
    utilisation = batch * m * n / (blocks * rows * columns)
    return rows, columns, utilisation * min(1.0, blocks / tiling.COMPUTE_UNITS)


def _work(conv: Convolution, outputs: int) -> float:
    """Operations of a convolution with so many outputs."""
    return 2.0 * outputs * conv.channels * prod(a.kernel / a.phases for a in conv.axes)


__all__ = ["implicit_product", "library_rate"]
