"""What hardware counters say of one launch, in one vocabulary for NVIDIA and AMD, and what holds the kernel back.

`METRICS` names every figure, its unit and where each vendor's comes from. A figure that a vendor does not give is None,
never a guess. `diagnose` reads the figures by rules with the thresholds below; docs/profile.md says where those come
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Literal

import msgspec

from hipwright.records import Record
from hipwright.targets import AMD, TARGETS

Kind = Literal["memory", "cache", "compute", "lds", "latency", "unknown"]

BUSY_PCT = 60.0  # Nsight Compute's "Speed Of Light" rules: below 60 % of every peak a kernel is latency bound
SECTOR_PCT = 75.0  # of the bytes fetched by loads or stores are used: below it, say so
LDS_CONFLICT_PCT = 20.0  # of LDS time goes to bank conflicts
LANES_PCT = 75.0  # of the lanes of an instruction are on, on average
TAIL_PCT = 20.0  # of the last round of blocks is idle units, when there are few rounds
FEW_ROUNDS = 4.0
OCCUPANCY_PCT = 40.0
STALL_PCT = 20.0  # of the time between instructions, for one cause, is worth a word


class Metric(Record, frozen=True, kw_only=True):
    """One figure of a Profile. nvidia, amd: the counters or formula it comes from, "" where the vendor has none."""

    name: str
    unit: str
    meaning: str
    nvidia: str = ""
    amd: str = ""


class KernelBottleneck(Record, frozen=True, kw_only=True):
    """What holds a kernel back. kind: the resource; text: one or more plain sentences with the figures behind them."""

    kind: Kind
    text: str


class Profile(Record, frozen=True, kw_only=True):
    """One launch of one kernel under a profiler; units and meanings of the figures are in `METRICS`.

    own: a kernel of the program, not of a library. number: the launch's place in the call. grid in blocks, block in
    threads. stalls: share (percent) of the waves' time by cause. units: CUs or SMs of the device.
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


_M = [
    (
        "duration_us",
        "us",
        "device time of the launch, counters on",
        "gpu__time_duration.sum",
        "End_Timestamp - Start_Timestamp",
    ),
    (
        "dram_read_bytes",
        "bytes",
        "read from device memory",
        "dram__bytes_read.sum",
        "32 B, 64 B and (gfx942) 128 B requests of TCC_EA(0)_RDREQ",
    ),
    (
        "dram_write_bytes",
        "bytes",
        "written to device memory",
        "dram__bytes_write.sum",
        "32 B and 64 B requests of TCC_EA(0)_WRREQ",
    ),
    (
        "dram_throughput_pct",
        "%",
        "of the peak bandwidth of device memory",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "bytes / duration / nominal bandwidth",
    ),
    (
        "cache_throughput_pct",
        "%",
        "of the peak of the busiest cache level",
        "max of l1tex__ and lts__throughput.avg.pct_of_peak_sustained_active / _elapsed",
        "",
    ),
    ("l2_hit_pct", "%", "L2 hits of L2 lookups", "lts__t_sector_hit_rate.pct", "TCC_HIT / (TCC_HIT + TCC_MISS)"),
    (
        "l1_hit_pct",
        "%",
        "L1 hits of L1 lookups",
        "l1tex__t_sector_hit_rate.pct",
        "1 - (TCP_TCC_READ_REQ + TCP_TCC_WRITE_REQ) / TCP_TOTAL_CACHE_ACCESSES",
    ),
    (
        "load_efficiency_pct",
        "%",
        "of the bytes that global loads fetch are used",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
        "",
    ),
    (
        "store_efficiency_pct",
        "%",
        "the same of global stores",
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
        "",
    ),
    (
        "sectors_per_load",
        "sectors",
        "32-byte sectors that one wave's load touches",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
        "",
    ),
    (
        "coalescing_pct",
        "%",
        "cache accesses a fully coalesced wave would make, of those made",
        "",
        "64 * TA_TOTAL_WAVEFRONTS / (4 * TCP_TOTAL_ACCESSES)",
    ),
    (
        "valu_pct",
        "%",
        "of the time the vector ALUs are busy (NVIDIA: the busier of FMA and ALU pipes)",
        "max of sm__inst_executed_pipe_fma, _alu.avg.pct_of_peak_sustained_active",
        "VALUBusy",
    ),
    (
        "matrix_pct",
        "%",
        "of the time the matrix units are busy",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "MfmaUtil",
    ),
    (
        "compute_throughput_pct",
        "%",
        "of the peak of the busiest compute pipe",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "",
    ),
    (
        "ipc",
        "per cycle",
        "instructions per cycle of an active unit",
        "sm__inst_executed.avg.per_cycle_active",
        "SQ_INSTS / SQ_BUSY_CU_CYCLES / 4",
    ),
    (
        "lanes_pct",
        "%",
        "of a wave's lanes that an instruction works on",
        "smsp__thread_inst_executed_per_inst_executed.ratio / 32",
        "VALUUtilization",
    ),
    (
        "uniform_branches_pct",
        "%",
        "of branches that all lanes take together",
        "smsp__sass_average_branch_targets_threads_uniform.pct",
        "",
    ),
    (
        "occupancy_pct",
        "%",
        "of the wave slots that were filled, on average",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "OccupancyPercent",
    ),
    (
        "occupancy_limit_pct",
        "%",
        "that registers, LDS and block size would allow",
        "sm__maximum_warps_per_active_cycle_pct",
        "waves per SIMD by the target's own limits",
    ),
    (
        "active_waves",
        "waves",
        "resident on a unit, on average",
        "sm__warps_active.avg.per_cycle_active",
        "MeanOccupancyPerCU",
    ),
    ("waves", "waves", "launched", "smsp__warps_launched.sum", "SQ_WAVES"),
    (
        "rounds",
        "rounds",
        "times that the blocks fill the device",
        "launch__waves_per_multiprocessor",
        "blocks / blocks resident at once",
    ),
    ("registers", "per lane", "vector registers", "launch__registers_per_thread", "VGPR_Count + Accum_VGPR_Count"),
    ("lds_bytes", "bytes", "LDS of a block", "launch__shared_mem_per_block_static + _dynamic", "LDS_Block_Size"),
    (
        "scratch_bytes",
        "bytes",
        "scratch (local) memory a lane, for spills and indexed arrays",
        "from the build",
        "Scratch_Size",
    ),
    (
        "lds_bank_conflicts",
        "cycles",
        "spent on LDS bank conflicts, all units",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "SQ_LDS_BANK_CONFLICT",
    ),
    (
        "lds_conflict_pct",
        "%",
        "of the LDS's working time, or wavefronts, that are conflicts",
        "conflicts / l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "SQ_LDS_BANK_CONFLICT / SQ_LDS_IDX_ACTIVE",
    ),
]
METRICS: dict[str, Metric] = {
    name: Metric(name=name, unit=unit, meaning=meaning, nvidia=nvidia, amd=amd)
    for name, unit, meaning, nvidia, amd in _M
}
"""Every numeric figure of a Profile."""

_STALL_WORDS = {
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
    """What holds this launch back, in words. bandwidth: measured bytes/s of device memory, where it is known.

    The first rule that holds names the kind: too few blocks, memory, cache, LDS, compute, else latency. What makes it
    worse (unused bytes, conflicts, idle lanes, a long tail) is added to it.
    """
    kind, text = _main(profile, bandwidth)
    return KernelBottleneck(kind=kind, text="; ".join([text, *_remarks(profile, kind)]))


def _main(p: Profile, bandwidth: float | None) -> tuple[Kind, str]:
    share, of = _memory_share(p, bandwidth)
    if share is not None and share >= BUSY_PCT:
        return "memory", f"memory bound: {share:.0f} % of {of} bandwidth"
    if p.blocks is not None and p.units and p.blocks < p.units:
        return "latency", f"latency: {p.blocks} blocks cannot fill {p.units} {_units(p)}"
    compute = _compute(p)
    cache = p.cache_throughput_pct or 0.0
    if (p.lds_conflict_pct or 0.0) >= 2 * LDS_CONFLICT_PCT and max(cache, compute[0]) >= BUSY_PCT:
        return "lds", f"LDS bound: {p.lds_conflict_pct:.0f} % of its work is bank conflicts"
    if cache >= BUSY_PCT and cache >= compute[0]:
        return "cache", f"cache bound: {cache:.0f} % of the peak of L1 or L2{_hits(p)}"
    if compute[0] >= BUSY_PCT:
        return "compute", f"compute bound: {compute[1]} are busy {compute[0]:.0f} % of the time"
    if share is None and not compute[0] and not p.stalls:
        return "unknown", "not enough counters to tell"
    shown = "" if share is None else f"{share:.0f} % of {of} bandwidth and "
    return "latency", f"latency: only {shown}{compute[0]:.0f} % of what {compute[1]} can do"


def _compute(p: Profile) -> tuple[float, str]:
    """The busiest arithmetic, and its name. NVIDIA's "compute throughput" has other pipes too, and goes last."""
    named = max((p.matrix_pct or 0.0, "the matrix units"), (p.valu_pct or 0.0, "the vector ALUs"))
    overall = p.compute_throughput_pct or 0.0
    return named if named[0] >= BUSY_PCT or overall <= named[0] else (overall, "the SMs' pipes")


def _memory_share(p: Profile, bandwidth: float | None) -> tuple[float | None, str]:
    """Percent of the bandwidth that was used, and of which: measured if it is known, else the vendor's peak."""
    rate = p.dram_bytes_per_s
    if bandwidth and rate is not None:
        return 100.0 * rate / bandwidth, "measured"
    return p.dram_throughput_pct, "peak"


def _remarks(p: Profile, kind: Kind) -> list[str]:
    found = _waste(p)
    if kind == "latency":
        found += _why_slow(p)
    if p.scratch_bytes:
        found.append(f"{p.scratch_bytes:.0f} bytes of scratch a lane: spills or indexed arrays go through memory")
    if p.blocks and p.units and p.rounds and 1.0 < p.rounds < FEW_ROUNDS:
        idle = 100.0 * (-(-p.rounds // 1) - p.rounds) / -(-p.rounds // 1)
        if idle >= TAIL_PCT:
            found.append(f"the blocks fill the device {p.rounds:.2f} times: {idle:.0f} % of the last rounds is idle")
    return found


def _waste(p: Profile) -> list[str]:
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


def _why_slow(p: Profile) -> list[str]:
    found = []
    worst = max(p.stalls.items(), key=lambda item: item[1], default=("", 0.0))
    if worst[1] >= STALL_PCT:
        found.append(f"waves wait {worst[1]:.0f} % of their time {_STALL_WORDS.get(worst[0], worst[0])}")
    if p.occupancy_limit_pct is not None and p.occupancy_limit_pct < OCCUPANCY_PCT:
        cause = "registers or LDS"
        found.append(f"{cause} allow only {p.occupancy_limit_pct:.0f} % of the waves a unit can hold")
    elif p.occupancy_pct is not None and p.occupancy_pct < OCCUPANCY_PCT:
        found.append(f"only {p.occupancy_pct:.0f} % of the wave slots are filled")
    return found


def _units(p: Profile) -> str:
    vendor = TARGETS.gpu(p.target).vendor
    return vendor.unit if vendor else AMD.unit


def _hits(p: Profile) -> str:
    known = [(name, value) for name, value in (("L1", p.l1_hit_pct), ("L2", p.l2_hit_pct)) if value is not None]
    return f" ({', '.join(f'{name} hits {value:.0f} %' for name, value in known)})" if known else ""


def share_of(parts: Mapping[str, float]) -> dict[str, float]:
    """Non-negative amounts as percent of their sum, largest first; {} when there are none."""
    total = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return {name: round(100.0 * value / total, 2) for name, value in ordered if value > 0} if total > 0 else {}


def plain_name(kernel: str) -> str:
    """A kernel's name as the source has it: profilers add the parameter list, older ones ".kd"."""
    return kernel.partition("(")[0].removesuffix(".kd").strip()
