"""Names the one thing that limits a profiled call, for a search: the rule is in docs/profile.md.

The kernel with the longest launch decides. The first rule that applies gives the name; where it is "memory", "issue" or
"lds", the unit is busy, and elsewhere none is.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.measure.profiling.bottleneck import (
    FEW_ROUNDS,
    LDS_CONFLICT_PCT,
    OCCUPANCY_PCT,
    TAIL_PCT,
    diagnose,
)
from hipwright.measure.profiling.profile import Profile
from hipwright.records import Record

COUNTERS = "counters"
SHOWN = (
    "duration_us",
    "dram_throughput_pct",
    "cache_throughput_pct",
    "valu_pct",
    "matrix_pct",
    "lds_conflict_pct",
    "occupancy_pct",
    "occupancy_limit_pct",
    "coalescing_pct",
    "load_efficiency_pct",
    "rounds",
    "registers",
    "l2_hit_pct",
)
"""The figures of a profile that are kept with its limit."""


class CallLimit(Record, frozen=True, kw_only=True):
    """What limits a call. name: memory, issue, lds, tail, occupancy, latency, or "" for unknown. kernel: the longest.

    text: the finding with its figures. share: of the call's device time that this kernel takes, 0 to 1.
    """

    name: str
    kernel: str
    text: str
    share: float
    figures: dict[str, float]


def call_limit(profiles: Sequence[Profile]) -> CallLimit | None:
    """The limit of the longest launch of a call; None without launches."""
    if not profiles:
        return None
    longest = max(profiles, key=lambda one: (one.duration_us or 0.0, -one.number))
    whole = sum(one.duration_us or 0.0 for one in profiles)
    name, why = _rule(longest)
    found = longest.bottleneck or diagnose(longest)
    share = (longest.duration_us or 0.0) / whole if whole else 1.0
    return CallLimit(
        name=name,
        kernel=longest.kernel,
        text=why or found.text,
        share=share,
        figures={key: round(v, 3) for key in SHOWN if (v := getattr(longest, key)) is not None},
    )


def _rule(p: Profile) -> tuple[str, str]:
    """(name, the finding where `diagnose` has no text for it)."""
    simulated = p.basis != COUNTERS
    if p.blocks is not None and p.units and p.blocks < p.units:
        return "tail", f"{p.blocks} blocks for {p.units} units: most of the device has none"
    if simulated and (few := _few_waves(p)):
        return few  # the model has no latency: a busy unit says nothing where few waves are there to hide it
    kind = (p.bottleneck or diagnose(p)).kind
    if kind in ("memory", "cache"):
        return "memory", ""
    if kind == "compute":
        return "issue", ""
    if kind == "lds" or ((p.lds_conflict_pct or 0.0) >= LDS_CONFLICT_PCT and (p.lds_bank_conflicts or 0) > 0):
        return "lds", ""
    if p.rounds and 1.0 < p.rounds < FEW_ROUNDS and _idle(p.rounds) >= TAIL_PCT:
        return "tail", ""
    return _few_waves(p) or ("" if kind == "unknown" else "latency", "")


def _few_waves(p: Profile) -> tuple[str, str] | None:
    """Few resident waves: for want of registers or LDS (occupancy), or of blocks (tail)."""
    if p.occupancy_limit_pct is not None and p.occupancy_limit_pct < OCCUPANCY_PCT:
        return "occupancy", f"registers or LDS allow {p.occupancy_limit_pct:.0f} % of the waves a unit can hold"
    if p.occupancy_pct is not None and p.occupancy_pct < OCCUPANCY_PCT and p.rounds is not None and p.rounds < 1.0:
        return "tail", f"the blocks fill {p.occupancy_pct:.0f} % of the wave slots: the grid is small"
    return None


def _idle(rounds: float) -> float:
    """Percent of the last round of blocks, and those before it, that is idle."""
    whole = -(-rounds // 1)
    return 100.0 * (whole - rounds) / whole
