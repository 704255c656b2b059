"""How the reference's inputs and parameters are nudged, to see how far a rounding error moves its result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Nudge:
    """How elements move in one run of the reference (`verify.inputs.nudge`, `task.device.model.nudge`).

    size: by how many roundings; a negative one is the same draw the other way. scaling: the part of a nudge that is the
    same for all elements lets each grow by the same share, which a sum of squares does not average out; else each grows
    by that share of its magnitude, which a sum of terms of both signs does not average out. sums: the results of sums
    move too (`task.host.rounded_sums`).
    """

    size: float
    scaling: bool
    sums: bool


NUDGES = (
    Nudge(1.0, scaling=False, sums=False),
    Nudge(4.0, scaling=True, sums=True),
    Nudge(-4.0, scaling=True, sums=True),
)
"""The nudged runs. One draw may happen to move an element by little. A clipped element, or a close decision, is passed
by one of the two opposite runs; their size is c of the default policy, so that a budget covers all that they move."""

CATEGORIES = 4
"""An input of at most so many different values, all whole, names classes (a target of -1 or 1, a mask of 0.0 and 1.0):
it is compared by equality, also inside of torch's operators, and no program reads another number there. So it stays.
"""
CATEGORY_SAMPLE = 4096
"""The values are those of so many first elements; all others must be among them."""

NOISE_TILE = 999_983
"""A tensor of more elements repeats its first random numbers: numbers of its own for each take most of the time.
A prime number, so that the rows and columns of a matrix do not repeat.
"""
