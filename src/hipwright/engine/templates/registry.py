"""The call templates by the operators that they write: one line each. Among several, the order is that of `space`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hipwright.engine.ir.operators import ATTENTION, RECURRENT_LAYER, ROW_RUNS
from hipwright.engine.lower.values import NotLowered
from hipwright.engine.templates.attention import split, split_matrix, tiled, tiled_matrix
from hipwright.engine.templates.conv import adaptive_pool, implicit_gemm, one_by_one, split_conv, stencil_calls
from hipwright.engine.templates.gemm import contraction, float8_product, grouped, products, routed, skinny_product
from hipwright.engine.templates.offers import KernelCall, Offer
from hipwright.engine.templates.recurrent import layer
from hipwright.engine.templates.scatter import runs, scatters, segments
from hipwright.engine.templates.select import calls

Template = Callable[[KernelCall], Offer | None]

_CONVOLUTIONS = stencil_calls.KINDS
_PRODUCTS, _SCALED = contraction.KINDS, contraction.SCALED
_MEANS = tuple(f"{prefix}adaptive_avg_pool{n}d" for prefix, n in (("", 1), ("", 2), ("", 3), ("_", 2), ("_", 3)))
_MAXIMA = tuple(f"max_pool{n}d{suffix}" for suffix in ("", "_with_indices") for n in (1, 2, 3))
_REDUCTIONS = ("index_add", "scatter_add", "index_put", "scatter_reduce", "index_reduce", "scatter")

REGISTERED: tuple[tuple[Template, Sequence[str]], ...] = (
    (skinny_product.packed_product, _PRODUCTS),
    (skinny_product.skinny_product, _PRODUCTS),
    (routed.routed_product, _PRODUCTS),
    (products.gemv_product, (*_PRODUCTS, _SCALED)),
    (products.direct_product, _PRODUCTS),
    (products.full_k_product, _PRODUCTS),
    (products.split_product, _PRODUCTS),
    (float8_product.float8_product, (*_PRODUCTS, _SCALED)),
    (products.tiled_product, (*_PRODUCTS, _SCALED)),
    (grouped.grouped, ("_grouped_mm",)),
    (split_conv.split_convolution, _CONVOLUTIONS),
    (stencil_calls.convolution, _CONVOLUTIONS),
    (stencil_calls.max_pool, _MAXIMA),
    (stencil_calls.avg_pool, ("avg_pool1d", "avg_pool2d", "avg_pool3d")),
    (stencil_calls.adaptive_pool, (*_MEANS, "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")),
    (adaptive_pool.adaptive, _MEANS),
    (implicit_gemm.implicit_product, _CONVOLUTIONS),
    (one_by_one.pointwise_product, _CONVOLUTIONS),
    (calls.best, ("topk", "kthvalue")),
    (calls.sort, ("sort", "argsort", "msort")),
    (segments.embedding_bag, ("embedding_bag",)),
    (segments.embedding, ("embedding",)),
    (runs.row_runs, (ROW_RUNS,)),
    (scatters.scatter_reduction, _REDUCTIONS),
    (scatters.scatter_last, ("scatter", "index_copy", "index_put")),
    (tiled_matrix.split_attention, ("scaled_dot_product_attention", ATTENTION)),
    (tiled.tiled_attention, ("scaled_dot_product_attention", ATTENTION)),
    (split_matrix.matrix_keys_attention, ("scaled_dot_product_attention", ATTENTION)),
    (split.split_keys_attention, ("scaled_dot_product_attention", ATTENTION)),
    (split.stored_keys_attention, ("scaled_dot_product_attention", ATTENTION)),
    (layer.persistent, (RECURRENT_LAYER,)),
)
"""(template, the short names of its operators: `aten.mm.default` is "mm")."""


def _by_operator() -> dict[str, list[Template]]:
    found: dict[str, list[Template]] = {}
    for template, kinds in REGISTERED:
        for kind in kinds:
            found.setdefault(kind, []).append(template)
    return found


TEMPLATES = _by_operator()


def templates_for(kind: str) -> list[Template]:
    """The templates for an operator."""
    return TEMPLATES.get(kind, [])


def offers_for(call: KernelCall) -> tuple[list[Offer], str]:
    """(what the templates offer for a call, why one declined)."""
    found, why = [], ""
    for template in templates_for(call.kind):
        try:
            offer = template(call)
        except NotLowered as problem:
            offer, why = None, str(problem)
        if offer is not None:
            found.append(offer)
    return found, why
