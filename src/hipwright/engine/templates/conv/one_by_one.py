"""Convolutions of 1 x 1 windows as matrix products: out[image, co, position] = W[co, ci] x[image, ci, position].

For half types on NVIDIA's tensor cores (tensor_cores.py): bias and following operators are the epilogue, where a
library stores the convolution and another kernel reads it again. In float32 the implicit product (gemm.py) is as good.
"""

from __future__ import annotations

from hipwright.engine.ir.index import ONE, ZERO, ix, product
from hipwright.engine.lower.conv import add_bias, read_convolution
from hipwright.engine.templates.gemm import sliced_k
from hipwright.engine.templates.gemm.contraction import contraction
from hipwright.engine.templates.gemm.cost import (
    LIBRARY_LATENCY,
    LIBRARY_RATE,
    LIBRARY_READ_RATE,
    MARGIN,
    READ_RATE,
)
from hipwright.engine.templates.gemm.scope import GemmSpec
from hipwright.engine.templates.gemm.tensor_cores import MMA
from hipwright.engine.templates.gemm.tiling import LAUNCH, ProductShape, choose
from hipwright.engine.templates.offers import KernelCall, Offer, Output, regroup

TEMPLATE_RATE, TEMPLATE_READ_RATE = 250e12, 2.6e12
"""Operations and bytes a second of tiles on an H200: 280e12 measured of 16384 x 2048 x 1024 with GELU, and 2.6e12 of 64
channels into 128 with ReLU (118 us; the library and a kernel for bias and ReLU 186).
"""


def pointwise_product(call: KernelCall) -> Offer | None:
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
    return Offer(
        "gemm", sliced_k.write, [made.a, made.b], [Output(shape)], _beats_library(call, spec), finish, data=spec
    )


def _beats_library(call: KernelCall, spec: GemmSpec) -> bool:
    """Whether the product with its epilogue is estimated faster than the library and a kernel for the epilogue."""
    batch, m, n = call.hints(spec.space)
    shape = ProductShape(batch, m, n, call.c.hint(spec.k), spec.dtype)
    if choose(shape).small:
        return False
    operations, outputs = 2.0 * batch * m * n * shape.k, 2.0 * batch * m * n
    bytes_moved = outputs + 2.0 * (m * shape.k + batch * shape.k * n)
    template = LAUNCH + max(operations / TEMPLATE_RATE, bytes_moved / TEMPLATE_READ_RATE)
    library = LAUNCH + max(LIBRARY_LATENCY, operations / LIBRARY_RATE[spec.dtype], bytes_moved / LIBRARY_READ_RATE)
    follower = LAUNCH + 2.0 * outputs / READ_RATE if call.read_by_pointwise else 0.0
    return template < MARGIN * (library + follower)


__all__ = ["pointwise_product"]
