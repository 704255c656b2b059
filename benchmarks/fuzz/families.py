"""The families of templates, and the operators that generated graphs have of each."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.fuzz import heavy_operators as heavy
from benchmarks.fuzz import operators
from benchmarks.fuzz.sketch import GraphSketch, Value

Make = Callable[[GraphSketch], Value]

FAMILIES: dict[str, tuple[Make, ...]] = {
    "pointwise": (operators.unary, operators.binary),
    "packed": (operators.packed,),
    "integers": (operators.whole,),
    "rows": (operators.norm,),
    "reductions": (operators.reduction,),
    "scan": (operators.scan,),
    "gemm": (heavy.product,),
    "conv": (heavy.convolution, heavy.transposed_convolution),
    "pool": (heavy.pool,),
    "resample": (heavy.resample,),
    "attention": (heavy.attention,),
    "scatter": (operators.indexing,),
    "select": (operators.select,),
    "recurrent": (heavy.recurrent,),
    "views": (operators.views, operators.in_place),
    "joined": (operators.joined,),
}
"""The families; a graph of a family has an operator of it, and others of any family around it."""
RANKS = {"conv": (3, 4), "pool": (3, 4), "resample": (3, 4), "recurrent": (3,)}
"""Ranks of the first input of a family's graphs, where not all fit."""
