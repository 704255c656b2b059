"""The library of operators that compositions draw from (docs/synth.md)."""

from __future__ import annotations

from hipwright.synth.operators import indexing, layout, losses, norms, pointwise, products, reductions, windows
from hipwright.synth.operators.base import SynthOperator

LIBRARY: tuple[SynthOperator, ...] = (
    *pointwise.OPERATORS,
    *reductions.OPERATORS,
    *norms.OPERATORS,
    *windows.OPERATORS,
    *products.OPERATORS,
    *indexing.OPERATORS,
    *layout.OPERATORS,
    *losses.OPERATORS,
)

BY_NAME: dict[str, SynthOperator] = {one.name: one for one in LIBRARY}


def operators_named(name: str) -> tuple[SynthOperator, ...]:
    """The operator of that name, or all operators of that family; () for an unknown name."""
    if name in BY_NAME:
        return (BY_NAME[name],)
    return tuple(one for one in LIBRARY if one.family == name)
