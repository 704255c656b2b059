"""The typed library of operators: what compositions are made of (docs/synth.md)."""

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

FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(one.family for one in LIBRARY))


def named(word: str) -> tuple[SynthOperator, ...]:
    """The operator of that name, or those of the family; () for a word the library does not have."""
    if word in BY_NAME:
        return (BY_NAME[word],)
    return tuple(one for one in LIBRARY if one.family == word)
