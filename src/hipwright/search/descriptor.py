"""The MAP-Elites descriptor: 4 x 4 x 4 cells by a program's use of memory, arithmetic and parallelism.

The axes are KernelFoundry's; `hipwright.evaluation.features` finds them in a build and its launches, without a GPU:

    memory_level        0.75 * widest vector memory access / 16 bytes + 0.25 * share of kernels that use LDS
    compute_level       log2(1 + arithmetic instructions / memory instructions) / 8
    parallelism_level   0.5 * occupancy / 8 waves a SIMD + 0.5 * log2(1 + launched threads) / 24
"""

from __future__ import annotations

from hipwright.records import Evaluation

AXES = ("memory_level", "compute_level", "parallelism_level")
LEVELS = 4

Coords = tuple[int, int, int]


def coords(evaluation: Evaluation) -> Coords:
    """Returns the cell, 0 to LEVELS - 1 on each axis; a missing or NaN feature counts as 0."""
    memory, compute, parallelism = (_level(evaluation.features.get(axis, 0.0)) for axis in AXES)
    return memory, compute, parallelism


def _level(value: float) -> int:
    if value != value:  # NaN
        return 0
    return int(min(max(value, 0.0), 1.0 - 1e-9) * LEVELS)
