"""What limits a profiled kernel, by rules over its figures. docs/profile.md gives the sources of the thresholds."""

from __future__ import annotations

from hipwright.measure.profiling.profile import KernelBottleneck, Kind, Profile
from hipwright.targets import AMD, TARGETS

BUSY_PCT = 60.0  # Nsight Compute's "Speed Of Light" rules: below 60 % of every peak a kernel is latency bound
SECTOR_PCT = 75.0  # of the bytes that loads or stores fetch are used; below it, a remark
LDS_CONFLICT_PCT = 20.0  # of the LDS time goes to bank conflicts
LANES_PCT = 75.0  # of the lanes are active, averaged over instructions
TAIL_PCT = 20.0  # of the last round of blocks leaves units idle; a remark where there are fewer than FEW_ROUNDS
FEW_ROUNDS = 4.0
OCCUPANCY_PCT = 40.0
STALL_PCT = 20.0  # of the time between instructions, for one cause, gives a remark


_WAITS = {
    "memory": "for global memory",
    "lds": "for LDS",
    "barrier": "at barriers",
    "pipe": "for busy arithmetic pipes",
    "dependency": "for results of arithmetic",
    "issue": "for a turn to issue",
    "branch": "for branches",
    "instruction": "for instructions to be fetched",
    "memory or barrier": "for memory or at barriers",
    "other": "for other reasons",
}


def diagnose(profile: Profile, *, bandwidth: float | None = None) -> KernelBottleneck:
    """The resource that limits this launch. bandwidth: measured bytes/s of device memory, where it is known.

    The first rule that applies gives the kind: memory, too few blocks, LDS, cache, compute, else latency. Remarks on
    inefficiencies (unused bytes, bank conflicts, idle lanes, a partly idle last round of blocks) follow its text.
    """
    kind, text = _limit(profile, bandwidth)
    return KernelBottleneck(kind=kind, text="; ".join([text, *_remarks(profile, kind)]))


def _limit(p: Profile, bandwidth: float | None) -> tuple[Kind, str]:
    share, of = _memory_share(p, bandwidth)
    if share is not None and share >= BUSY_PCT:
        return "memory", f"memory bound: {share:.0f} % of {of} bandwidth"
    if p.blocks is not None and p.units and p.blocks < p.units:
        return "latency", f"latency: {p.blocks} blocks cannot fill {p.units} {_unit_name(p)}"
    compute = _busiest_unit(p)
    cache = p.cache_throughput_pct or 0.0
    if (p.lds_conflict_pct or 0.0) >= 2 * LDS_CONFLICT_PCT and max(cache, compute[0]) >= BUSY_PCT:
        return "lds", f"LDS bound: {p.lds_conflict_pct:.0f} % of its work is bank conflicts"
    if cache >= BUSY_PCT and cache >= compute[0]:
        return "cache", f"cache bound: {cache:.0f} % of the peak of L1 or L2{_hit_rates(p)}"
    if compute[0] >= BUSY_PCT:
        return "compute", f"compute bound: {compute[1]} are busy {compute[0]:.0f} % of the time"
    if share is None and not compute[0] and not p.stalls:
        return "unknown", "not enough counters to tell"
    shown = "" if share is None else f"{share:.0f} % of {of} bandwidth and "
    return "latency", f"latency: only {shown}{compute[0]:.0f} % of what {compute[1]} can do"


def _busiest_unit(p: Profile) -> tuple[float, str]:
    """(percent of the time that the busiest arithmetic unit works, its name).

    NVIDIA's "compute throughput" includes other pipes too, so it counts only where no named unit is busy.
    """
    named = max((p.matrix_pct or 0.0, "the matrix units"), (p.valu_pct or 0.0, "the vector ALUs"))
    overall = p.compute_throughput_pct or 0.0
    return named if named[0] >= BUSY_PCT or overall <= named[0] else (overall, "the SMs' pipes")


def _memory_share(p: Profile, bandwidth: float | None) -> tuple[float | None, str]:
    """(percent of the bandwidth that was used, "measured" where that bandwidth is known, else "peak")."""
    rate = p.dram_bytes_per_s
    if bandwidth and rate is not None:
        return 100.0 * rate / bandwidth, "measured"
    return p.dram_throughput_pct, "peak"


def _remarks(p: Profile, kind: Kind) -> list[str]:
    found = _inefficiencies(p)
    if kind == "latency":
        found += _latency_remarks(p)
    if p.scratch_bytes:
        found.append(f"{p.scratch_bytes:.0f} bytes of scratch a lane: spills or indexed arrays go through memory")
    if p.blocks and p.units and p.rounds and 1.0 < p.rounds < FEW_ROUNDS:
        idle = 100.0 * (-(-p.rounds // 1) - p.rounds) / -(-p.rounds // 1)
        if idle >= TAIL_PCT:
            found.append(f"the blocks fill the device {p.rounds:.2f} times: {idle:.0f} % of the last rounds is idle")
    return found


def _inefficiencies(p: Profile) -> list[str]:
    found = []
    for what, share in (("loads", p.load_efficiency_pct), ("stores", p.store_efficiency_pct)):
        if share is not None and share < SECTOR_PCT:
            found.append(f"{what} use {share * 0.32:.0f} of 32 bytes of each sector")
    if p.coalescing_pct is not None and p.coalescing_pct < SECTOR_PCT:
        found.append(f"accesses are coalesced to {p.coalescing_pct:.0f} %")
    if p.lds_conflict_pct is not None and p.lds_conflict_pct >= LDS_CONFLICT_PCT and (p.lds_bank_conflicts or 0) > 0:
        found.append(f"{p.lds_conflict_pct:.0f} % of the LDS's work is bank conflicts")
    if p.lanes_pct is not None and p.lanes_pct < LANES_PCT:
        found.append(f"{p.lanes_pct:.0f} % of the lanes work: branches diverge, or blocks do not fill waves")
    return found


def _latency_remarks(p: Profile) -> list[str]:
    found = []
    worst = max(p.stalls.items(), key=lambda item: item[1], default=("", 0.0))
    if worst[1] >= STALL_PCT:
        found.append(f"waves wait {worst[1]:.0f} % of their time {_WAITS.get(worst[0], worst[0])}")
    if p.occupancy_limit_pct is not None and p.occupancy_limit_pct < OCCUPANCY_PCT:
        found.append(f"registers or LDS allow only {p.occupancy_limit_pct:.0f} % of the waves a unit can hold")
    elif p.occupancy_pct is not None and p.occupancy_pct < OCCUPANCY_PCT:
        found.append(f"only {p.occupancy_pct:.0f} % of the wave slots are filled")
    return found


def _unit_name(p: Profile) -> str:
    vendor = TARGETS[p.target].vendor
    return vendor.unit if vendor else AMD.unit


def _hit_rates(p: Profile) -> str:
    known = [(name, value) for name, value in (("L1", p.l1_hit_pct), ("L2", p.l2_hit_pct)) if value is not None]
    return f" ({', '.join(f'{name} hits {value:.0f} %' for name, value in known)})" if known else ""
