"""Matrix products as call templates: what each operator is offered, and which offer is the default.

`gemv` (few rows or columns), `tiny` (no LDS), `whole` (a short k, all of it in LDS), `gemm` (tiles) and `split` (large
float32 products on matrix units of half types). The default is the least of the estimated times (cost.py) of these and
of the library, which keeps large products of half types.
"""

from __future__ import annotations

from typing import Any

from hipwright.engine.ir.index import ZERO
from hipwright.engine.knobs import SPLIT
from hipwright.engine.lower.values import ROW_TILE
from hipwright.engine.templates import split_rows
from hipwright.engine.templates.gemm import direct, full_k, gemv_kernel, gemv_plan, sliced_k, split_precision
from hipwright.engine.templates.gemm.contraction import product_of
from hipwright.engine.templates.gemm.cost import MARGIN, ProductCost
from hipwright.engine.templates.gemm.scope import GemmSpec
from hipwright.engine.templates.offers import STORE_ABOVE, KernelCall, Offer

STORE_ABOVE_READ_ONCE = 64
"""The weight up to which a matrix that is read once is computed where it is read, not by a kernel before."""


def gemv_product(call: KernelCall) -> Offer | None:
    """One row or column, or a few: bound by memory (gemv_plan.py)."""
    p = product_of(call)
    spec = gemv_plan.plan(call.c, p.a, p.b, p.space, p.k) if p else None
    if p is None or spec is None:
        return None
    costs = ProductCost(call, p)
    default = not p.offered_alone and costs.gemv(spec) < min(MARGIN * costs.library(), costs.gemm())
    read_once = call.c.hint(spec.vector_count) <= gemv_plan.VECTOR_CHUNK
    return Offer(
        "gemv",
        gemv_kernel.write,
        [spec.matrix, spec.vectors],
        [p.output],
        default,
        p.finish,
        store_above=(STORE_ABOVE_READ_ONCE if read_once else STORE_ABOVE, STORE_ABOVE),
        data=spec,
    )


def direct_product(call: KernelCall) -> Offer | None:
    """Tiny matrices, many or few (direct.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space:
        return None
    costs = ProductCost(call, p)
    small = max(costs.k, min(costs.m, costs.n)) <= direct.SMALL_SIDE  # however many rows share a small matrix
    if costs.k > direct.MAX_DEPTH or (costs.flops > 2 * direct.MAX_OPERATIONS and not small):
        return None
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    tiles = costs.direct() < costs.gemm() or (small and costs.direct() <= costs.gemm())  # tiles of 32 would be empty
    default = costs.k <= direct.MAX_DEPTH // 2 and tiles and costs.direct() < MARGIN * costs.library()
    return Offer("tiny", direct.write, [p.a, p.b], [p.output], default, p.finish, data=data)


def full_k_product(call: KernelCall) -> Offer | None:
    """A short k (full_k.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space or p.dtype != "float32":
        return None
    costs = ProductCost(call, p)
    if costs.k > full_k.MAX_K or min(costs.m, costs.n) <= gemv_plan.VECTOR_CHUNK:
        return None
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    default = costs.full_k() < min(costs.gemm(), MARGIN * costs.library())
    return Offer("whole", full_k.write, [p.a, p.b], [p.output], default, p.finish, data=data)


def tiled_product(call: KernelCall) -> Offer | None:
    """Any product (tiled.py, sliced_k.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space:
        return None
    costs = ProductCost(call, p)
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    default = not p.offered_alone and costs.gemm() < MARGIN * costs.library(before=not costs.in_chain)
    return Offer("gemm", sliced_k.write, [p.a, p.b], [p.output], default, p.finish, data=data)


def split_product(call: KernelCall) -> Offer | None:
    """Large float32 products on matrix units of half types (split_precision.py)."""
    p = product_of(call)
    if p is None or ZERO in p.space or p.dtype != "float32":
        return None
    costs = ProductCost(call, p)
    side = min(costs.m, costs.n)
    if side < split_precision.LEAST_SIDE or costs.k < split_precision.LEAST_DEPTH:
        return None
    data: Any = GemmSpec(p.space, p.k, p.dtype)
    usual = side >= split_precision.MIN_SIDE and costs.k >= split_precision.MIN_DEPTH
    default = usual and bool(call.choices.get(SPLIT)) and costs.split() < min(costs.gemm(), MARGIN * costs.library())
    offer = Offer("split", split_rows.write, [p.a, p.b], [p.output], default, p.finish, data=data)
    offer.row_dim, offer.row_least = 2, 2 * ROW_TILE
    offer.row_whole = bool(call.choices.get(SPLIT)) and split_rows.pays(costs.shape)
    return offer
