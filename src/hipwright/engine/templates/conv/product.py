"""Convolutions of windows of one, as the products that they are: out[image, co, place] = W[co, ci] x[image, ci, place].

In half types, for NVIDIA's tensor cores (tensor_tiles.py): bias and what follows stand behind the sums, where a library
writes the convolution and another kernel reads it again. In float32 the implicit product (templates/conv/gemm.py) is as
good.
"""

from __future__ import annotations

from hipwright.engine.ir.index import ONE, ZERO, ix, product
from hipwright.engine.lower.conv import add_bias, read_convolution
from hipwright.engine.templates.gemm import small as gemm_small
from hipwright.engine.templates.gemm.products import (
    LIBRARY_LATENCY,
    LIBRARY_RATE,
    LIBRARY_READ,
    MARGIN,
    READ,
    contraction,
)
from hipwright.engine.templates.gemm.scope import GemmSpec
from hipwright.engine.templates.gemm.tensor_tiles import MMA
from hipwright.engine.templates.gemm.tiling import LAUNCH, ProductShape, choose
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

RATE, MOVED = 250e12, 2.6e12
"""Operations and bytes a second of tiles on an H200: 280e12 measured of 16384 x 2048 x 1024 with GELU, and
2.6e12 of 64 channels into 128 with ReLU (118 us; the library and a kernel for bias and ReLU 186)."""


def pointwise(call: KernelCall) -> Offer | None:
    """Strides of one, no padding, no groups."""
    out = call.shape(0)
    conv = read_convolution(call.kind, [call.arg(k) for k in range(9)], out)
    n = len(conv.axes)
    if conv.x.dtype not in MMA or conv.weight.dtype != conv.x.dtype or conv.groups != 1 or ZERO in out:
        return None
    if any((a.kernel, a.stride, a.padding) != (1, 1, 0) or a.transposed for a in conv.axes):
        return None
    batch, area = out[0] if conv.x.rank == n + 2 else ONE, product([a.out for a in conv.axes])
    weight = regroup(call.c, conv.weight, [ix(conv.outputs), ix(conv.channels)])
    x = regroup(call.c, conv.x, [batch, ix(conv.channels), area])
    rows = call.c.tensor(weight.dtype, [batch, *weight.shape], lambda i: weight.at(i[1:]))
    made = contraction(call.c, rows, "bmk", x, "bkp", "bmp")
    finish = None if conv.bias is None else add_bias(call.c, conv.bias, n)
    shape = [batch, ix(conv.outputs), area]
    spec = GemmSpec(made.space, made.k, conv.x.dtype)
    return Offer("gemm", gemm_small.write, [made.a, made.b], [Output(shape)], _better(call, spec), finish, data=spec)


def _better(call: KernelCall, spec: GemmSpec) -> bool:
    """Is the product, with what follows behind it, faster than the library and a kernel for the rest?"""
    batch, m, n = call.hints(spec.space)
    shape = ProductShape(batch, m, n, call.c.hint(spec.k), spec.dtype)
    if choose(shape).small:
        return False
    operations, outputs = 2.0 * batch * m * n * shape.k, 2.0 * batch * m * n
    moved = outputs + 2.0 * (m * shape.k + batch * shape.k * n)
    mine = LAUNCH + max(operations / RATE, moved / MOVED)
    library = LAUNCH + max(LIBRARY_LATENCY, operations / LIBRARY_RATE[spec.dtype], moved / LIBRARY_READ)
    behind = LAUNCH + 2.0 * outputs / READ if call.followed else 0.0
    return mine < MARGIN * (library + behind)


__all__ = ["pointwise"]
