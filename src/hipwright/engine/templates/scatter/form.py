"""The form of a scatter, read from a call by scatters.py."""

from __future__ import annotations

from dataclasses import dataclass

from hipwright.engine.ir.index import Ix


@dataclass(eq=False)
class Scatter:
    """What happens at the places. each: the index has the source's shape (scatter), not one element a slice."""

    shape: list[Ix]
    dim: int
    each: bool
    mode: str  # add, mean, amax, amin, prod or last
    alpha: float = 1.0
    include: bool = True
