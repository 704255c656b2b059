"""One kernel launch as hardware counters describe it, in one vocabulary for NVIDIA and AMD.

A figure that a vendor's counters do not give is None, never a guess. `metrics` names every figure and its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

import msgspec

from hipwright.records import Record

Kind = Literal["memory", "cache", "compute", "lds", "latency", "unknown"]


class KernelBottleneck(Record, frozen=True, kw_only=True):
    """What limits a kernel. kind: the resource; text: one or more remarks, with the figures that they follow from."""

    kind: Kind
    text: str


class Profile(Record, frozen=True, kw_only=True):
    """One launch of one kernel under a profiler; units and meanings of the figures are in `metrics.METRICS`.

    own: whether the kernel is the program's, not a library's. number: the launch's index in the call. grid in blocks,
    block in threads. stalls: share (percent) of the waves' time by cause. units: CUs or SMs of the device. basis:
    "ESTIMATE (SIMULATED)" where no hardware counted: then instructions holds the executed instructions by class, and
    waits the number of waits by cause.
    """

    kernel: str
    target: str
    own: bool = True
    number: int = 0
    device: str = ""
    architecture: str = ""
    units: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    duration_us: float | None = None
    dram_read_bytes: float | None = None
    dram_write_bytes: float | None = None
    dram_throughput_pct: float | None = None
    cache_throughput_pct: float | None = None
    l2_hit_pct: float | None = None
    l1_hit_pct: float | None = None
    load_efficiency_pct: float | None = None
    store_efficiency_pct: float | None = None
    sectors_per_load: float | None = None
    coalescing_pct: float | None = None
    valu_pct: float | None = None
    matrix_pct: float | None = None
    compute_throughput_pct: float | None = None
    ipc: float | None = None
    lanes_pct: float | None = None
    uniform_branches_pct: float | None = None
    occupancy_pct: float | None = None
    occupancy_limit_pct: float | None = None
    active_waves: float | None = None
    waves: float | None = None
    rounds: float | None = None
    registers: float | None = None
    lds_bytes: float | None = None
    scratch_bytes: float | None = None
    lds_bank_conflicts: float | None = None
    lds_conflict_pct: float | None = None
    stalls: dict[str, float] = msgspec.field(default_factory=dict)
    instructions: dict[str, int] = msgspec.field(default_factory=dict)
    waits: dict[str, int] = msgspec.field(default_factory=dict)
    basis: str = "counters"
    bottleneck: KernelBottleneck | None = None

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return prod(self.grid) if self.grid else None

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Bytes to and from device memory over the duration."""
        moved = (self.dram_read_bytes, self.dram_write_bytes)
        if self.duration_us is None or self.duration_us <= 0 or moved[0] is None or moved[1] is None:
            return None
        return (moved[0] + moved[1]) / self.duration_us * 1e6


def share_of(parts: Mapping[str, float]) -> dict[str, float]:
    """Non-negative amounts as percent of their sum, largest first; {} when there are none."""
    total = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return {name: round(100.0 * value / total, 2) for name, value in ordered if value > 0} if total > 0 else {}


def plain_name(kernel: str) -> str:
    """A kernel's name as the source has it: profilers add the parameter list, older ones ".kd"."""
    return kernel.partition("(")[0].removesuffix(".kd").strip()
