"""Static features of a built program: the axes of the MAP-Elites grid, each scaled to [0, 1].

The axes follow KernelFoundry's memory, compute and parallelism levels; the formulas are hipwright's own and need no
GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log2, prod
from typing import Any

from hipwright.records import Build, Estimate

WIDEST_LANE_ACCESS = 16  # bytes: a dwordx4 load


def features(
    builds: Sequence[Build], launches: Sequence[Mapping[str, Any]], estimates: Iterable[Estimate]
) -> dict[str, float]:
    """Three features, averaged over the kernels of the first build.

    memory_level: width of vector memory access and use of LDS; compute_level: arithmetic for each memory instruction;
    parallelism_level: occupancy and launched threads.
    """
    kernels = [kernel for build in builds[:1] for kernel in build.kernels]
    if not kernels:
        return {}
    count = len(kernels)
    width = sum(min(k.widest_vmem_bytes, WIDEST_LANE_ACCESS) for k in kernels) / count / WIDEST_LANE_ACCESS
    lds = sum(bool(k.lds_bytes) for k in kernels) / count
    memory = sum(k.instructions.get("vmem_load", 0) + k.instructions.get("vmem_store", 0) for k in kernels)
    issue = sum(sum(k.instructions.get(c, 0) for c in ("valu", "trans", "mfma")) for k in kernels)
    occupancy = sum(k.occupancy for k in kernels) / count / 8
    threads = sum(prod(item["grid"]) * prod(item["block"]) for item in launches)
    found = list(estimates)
    return {
        "memory_level": _clip(0.75 * width + 0.25 * lds),
        "compute_level": _clip(log2(1 + issue / max(memory, 1)) / 8),
        "parallelism_level": _clip(0.5 * min(occupancy, 1.0) + 0.5 * log2(1 + threads) / 24),
        "kernels": float(count),
        "launches": float(len(launches)),
        "roofline_fraction": sum(e.roofline_fraction for e in found) / len(found) if found else 0.0,
    }


def _clip(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 4)
