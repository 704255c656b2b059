"""The specification of a scatter, which scatters.py reads from a call."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.index import Ix


@dataclass(eq=False)
class ScatterSpec:
    """A scatter. each: the index has the shape of the source (scatter), not one element for each slice."""

    shape: list[Ix]
    dim: int
    each: bool
    mode: str  # add, mean, amax, amin, prod or last
    alpha: float = 1.0
    include: bool = True
