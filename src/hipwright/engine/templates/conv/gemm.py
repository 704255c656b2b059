"""Convolutions as implicit matrix products: out[co, (image, position)] = sum over (ci, tap) of weight times input.

The tiles are those of templates/gemm/tiled.py; the one of the inputs is gathered while it is loaded to LDS, so that no
matrix of windows is ever in memory (Chetlur et al., "cuDNN: efficient primitives for deep learning", 2014). Zero
padding, strides, dilation and groups, one to three axes. A transposed convolution is taken apart by phases, the outputs
`o` of one `o % stride` along each axis: a phase is a convolution of stride 1 with the taps that meet it, so that no
product with one of the zeros between the inputs is computed, and nothing is added atomically.
"""

from __future__ import annotations

from math import ceil, inf, prod

from hipwright.engine.ir.expr import indices, walk
from hipwright.engine.ir.index import ONE, ZERO, Fn, Ix, ix, product
from hipwright.engine.lower.conv import ConvAxis, Convolution, add_bias, read_convolution
from hipwright.engine.lower.core import NotLowered, Tensor
from hipwright.engine.templates.conv import gemm_text as conv_gemm_text
from hipwright.engine.templates.conv.stencil_calls import few_products
from hipwright.engine.templates.conv.window import Window, steps
from hipwright.engine.templates.gemm import tiling
from hipwright.engine.templates.gemm.scope import MFMA
from hipwright.engine.templates.offers import KernelCall, Offer, Output, probe, regroup

MOST_TAPS = 343
"""Their table, at most 40 bytes each, stands in LDS beside the tiles, and NVIDIA gives a block 48 KiB."""
RATE = 28e12
"""Operations a second of full tiles on the vector units: 18 to 20e12 measured on an H200 in tiles of 32 and 48 rows."""
UNEVEN, WIDE, PHASED = 21e12, 14e12, 6e12
"""What its library reached there in float32: dilated 5x3, 1x7x7 of 3 channels, transposed 3x3x3 of stride 2 (3x3x3 of
16 channels: 26e12, out of reach of tiles of so few; with TF32, which no verification of float32 lets pass, 53e12)."""
WIDE_SIDE = 5
MARGIN = 0.95


def implicit(call: KernelCall) -> Offer | None:
    """Any convolution in float32, float16 or bfloat16."""
    out = call.shape(0)
    conv = read_convolution(call.kind, [call.arg(k) for k in range(9)], out)
    n = len(conv.axes)
    if conv.x.dtype not in MFMA or conv.weight.dtype != conv.x.dtype:
        return None
    if prod(a.kernel for a in conv.axes) > MOST_TAPS:
        raise NotLowered("a window of so many taps")
    if not conv.channels or not conv.outputs or ZERO in out:
        return None
    batch = out[0] if conv.x.rank == n + 2 else ONE
    window, x = _window(call, conv, batch)
    finish = None if conv.bias is None else add_bias(call.c, conv.bias, n)
    default = not few_products(conv, n) and _better(call, conv, window)
    return Offer(
        "implicit",
        conv_gemm_text.write,
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
    flat = not _divides(call, x)
    if not flat:
        x = regroup(call.c, conv.x, [*lead, *sizes])
    rims = [k for k, a in enumerate(conv.axes) if _reaches_out(call, a)]
    phases, taps = prod(a.phases for a in conv.axes), prod(a.kernel for a in conv.axes)
    space = [ix(conv.groups * phases), ix(conv.outputs), batch * product(steps(conv.axes))]
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
        flat,
        rims,
    )
    return window, x


def _divides(call: KernelCall, x: Tensor) -> bool:
    """Must an element's place be taken apart to find it (a permuted image, a scale of each column)?"""
    return any(isinstance(a, Fn) for e in walk([probe(call.c, x)]) for p in indices(e) for a in p.atoms())


def _reaches_out(call: KernelCall, a: ConvAxis) -> bool:
    """May a tap fall outside the input?"""
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
    """Operations a second that a library is taken to reach in float32; `inf` where it is not to be beaten.

    Dense two-dimensional ones stay the library's; it has no good kernel for windows that are dilated and no square, and
    in three dimensions or transposed for large, uneven or dilated ones, or phases.
    """
    sides = [a.kernel for a in conv.axes]
    uneven, dilated = len(set(sides)) > 1, any(a.dilation > 1 and a.kernel > 1 for a in conv.axes)
    if max(sides) == 1:
        return inf
    if len(sides) < 3 and not conv.transposed:
        return UNEVEN if uneven and dilated else inf
    if len(sides) == 3 and any(a.phases > 1 for a in conv.axes):
        return PHASED
    if max(sides) >= WIDE_SIDE:
        return WIDE
    return UNEVEN if uneven or dilated else inf


def _better(call: KernelCall, conv: Convolution, window: Window) -> bool:
    """Are the tiles, with what fuses behind them, faster than the library and kernels for the rest?"""
    rate = library_rate(conv) if conv.x.dtype == "float32" else inf
    if rate == inf:
        return False
    batch, m, n = call.hints(window.space)
    rows, columns = tiling.tile(batch, m, n)
    blocks = batch * ceil(m / rows) * ceil(n / columns)
    full = batch * m * n / (blocks * rows * columns)
    intensity = tiling.Tiling(rows, columns, tiling.DEPTH["float32"]).intensity
    mine = RATE * full * min(1.0, blocks / tiling.UNITS) * min(1.0, intensity / tiling.FULL)
    outputs = call.c.hints_of(call.shape(0))
    work = 2.0 * outputs * conv.channels * prod(a.kernel / a.phases for a in conv.axes)
    behind = 8.0 * outputs / tiling.READ if call.followed else 0.0
    return work / mine < MARGIN * (work / rate + behind)


__all__ = ["implicit", "library_rate"]
