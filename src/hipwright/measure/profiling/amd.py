"""AMD's counters: the groups that rocprofv3 is asked for, its CSV files, and Profiles out of them.

A GPU counts a few events of each block at a time, so the program runs once for each group; launches are matched by
their order. Two files come of each run: counter_collection.csv, a line for each counter of each dispatch, and
kernel_trace.csv, a line a dispatch. Sources: ROCprofiler-SDK documentation, "Using rocprofv3" (files and columns);
"MI300 and MI200 series performance counters and metrics" (events, their units and the derived metrics); ROCm Compute
Profiler (formulas).
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hipwright.errors import InfrastructureError
from hipwright.measure.profiling.profile import Profile, plain_name, share_of
from hipwright.measure.profiling.profiler_sandbox import Done, ProfilerSandbox
from hipwright.targets import OFFLINE, ROCM, Architecture
from hipwright.toolchain.amd import isa, rocm_paths

_COMMON: tuple[tuple[str, ...], ...] = (
    (
        "SQ_WAVES",
        "SQ_INSTS",
        "SQ_BUSY_CU_CYCLES",
        "SQ_WAVE_CYCLES",
        "SQ_WAIT_ANY",
        "SQ_WAIT_INST_ANY",
        "SQ_ACTIVE_INST_ANY",
    ),
    ("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"),
    ("VALUBusy",),
    ("VALUUtilization",),
    ("OccupancyPercent",),
    ("MeanOccupancyPerCU",),
)
_CDNA: tuple[tuple[str, ...], ...] = (
    ("MfmaUtil",),
    ("TCC_HIT_sum", "TCC_MISS_sum"),
    ("TCP_TOTAL_CACHE_ACCESSES_sum", "TCP_TCC_READ_REQ_sum", "TCP_TCC_WRITE_REQ_sum"),
    ("TA_TOTAL_WAVEFRONTS_sum", "TCP_TOTAL_ACCESSES_sum"),
)
_IDENTITY = ("Dispatch_Id", "Kernel_Name")


class RocProfiler:
    """Profiles with rocprofv3: one run for each group of counters that fit the hardware together."""

    program = "rocprofv3"
    install = "install rocprofiler-sdk (part of ROCm 6.2 and later)"

    def places(self) -> list[Path]:
        """ROCm's own, then PATH."""
        return [root / "bin/rocprofv3" for root in rocm_paths.roots()] + [Path(shutil.which("rocprofv3") or "/-")]

    def measure(
        self, place: ProfilerSandbox, runner: Sequence[str], arch: str, launches: Callable[[Done], list[dict[str, Any]]]
    ) -> tuple[list[Profile], list[str]]:
        """A profile of each launch; a note for counters that were not counted."""
        notes: list[str] = []
        passes: list[Pass] = []
        launched: list[dict[str, Any]] = []
        for group in groups(arch):
            done = place.run(command(runner, group, str(place.inside), tool=str(place.tool)))
            launched = launches(done)
            found = read_pass(place.output("counter_collection.csv"), place.output("kernel_trace.csv"))
            missing = set(group) - found.counters
            if missing:
                notes.append(f"not counted by this GPU or this rocprofv3: {', '.join(sorted(missing))}")
            passes.append(found)
        return profiles(passes, launched, arch), notes


def groups(arch: str) -> list[tuple[str, ...]]:
    """Counters by run for an architecture.

    RDNA has other names for its caches: there only the counters that all have.
    """
    architecture = OFFLINE.get(arch)
    if architecture is None or not architecture.memory_counter:
        return list(_COMMON)
    prefix, large = architecture.memory_counter, architecture.counts_128_byte_reads
    reads = (f"{prefix}_RDREQ_sum", f"{prefix}_RDREQ_32B_sum", *(("TCC_BUBBLE_sum",) if large else ()))
    return [*_COMMON, *_CDNA, reads, (f"{prefix}_WRREQ_sum", f"{prefix}_WRREQ_64B_sum")]


def command(program: Sequence[str], group: Sequence[str], folder: str, *, tool: str) -> list[str]:
    """The command line that counts one group while `program` runs."""
    return [
        tool,
        "--pmc",
        *group,
        "--kernel-trace",
        "--output-format",
        "csv",
        "-d",
        f"{folder}/counters",
        "-o",
        "out",
        "--",
        *program,
    ]


# ---------------------------------------------------------------- reading


@dataclass
class Dispatch:
    """One launch in one run: its counters, and its rows of the two files."""

    kernel: str
    counters: dict[str, float] = field(default_factory=dict)
    row: Mapping[str, str] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Pass:
    """The dispatches of one run, in order, and the counters that any of them has."""

    dispatches: list[Dispatch]
    counters: set[str]


def read_pass(counter_csv: str, trace_csv: str) -> Pass:
    """The two files of one run. A missing counter file is an empty run: rocprofv3 writes none when it knows no counter.

    Raises InfrastructureError for a file without the documented columns, or when there is nothing at all.
    """
    found: dict[str, Dispatch] = {}
    for row in _table(counter_csv, "counter_collection.csv", ("Counter_Name", "Counter_Value", *_IDENTITY)):
        value = _number(row["Counter_Value"])
        dispatch = found.setdefault(row["Dispatch_Id"], Dispatch(row["Kernel_Name"], row=row))
        if value is not None:
            dispatch.counters[row["Counter_Name"]] = dispatch.counters.get(row["Counter_Name"], 0.0) + value
    for row in _table(trace_csv, "kernel_trace.csv", ("Start_Timestamp", "End_Timestamp", *_IDENTITY)):
        found.setdefault(row["Dispatch_Id"], Dispatch(row["Kernel_Name"])).trace = row
    if not found:
        raise InfrastructureError(
            "rocprofv3 wrote no dispatches", hint="does `rocprofv3-avail list` name the counters?"
        )
    ordered = [found[key] for key in sorted(found, key=_order)]
    return Pass(ordered, {name for dispatch in ordered for name in dispatch.counters})


def _table(text: str, name: str, needed: Sequence[str]) -> list[dict[str, str]]:
    """The whole lines of a CSV file by column; [] for an empty file."""
    if not text.strip():
        return []
    try:
        rows = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise InfrastructureError(f"{name} is not CSV: {error}") from None
    header = rows[0]
    if missing := [column for column in needed if column not in header]:
        raise InfrastructureError(f"{name} has no column {', '.join(missing)}: another version of rocprofv3?")
    return [dict(zip(header, row, strict=True)) for row in rows[1:] if len(row) == len(header)]


def _order(dispatch: str) -> tuple[int, str]:
    return (int(dispatch), "") if dispatch.isdigit() else (0, dispatch)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------- Profiles


def profiles(
    passes: Sequence[Pass], launches: Sequence[Mapping[str, Any]], arch: str, device: str = ""
) -> list[Profile]:
    """One Profile for each of the program's own launches of the last call.

    launches: the runner's launches (kernel, grid, block), in order: the last dispatches of each run are those. Library
    kernels run in between, so the program's are found by name. Raises InfrastructureError when a run has fewer.
    """
    names = [str(launch["kernel"]) for launch in launches]
    columns = [_last(run, names) for run in passes]
    found = []
    for number, launch in enumerate(launches):
        runs = [column[number] for column in columns]
        counters: dict[str, float] = {}
        for dispatch in runs:
            counters = {**counters, **dispatch.counters}
        found.append(_profile(number, launch, runs, counters, arch, device))
    return found


def _last(run: Pass, names: Sequence[str]) -> list[Dispatch]:
    mine = [dispatch for dispatch in run.dispatches if plain_name(dispatch.kernel) in set(names)]
    tail = mine[len(mine) - len(names) :] if len(mine) >= len(names) else []
    if [plain_name(dispatch.kernel) for dispatch in tail] != list(names):
        raise InfrastructureError(
            f"rocprofv3 saw {len(mine)} launches of the program's kernels, not {len(names)} a call"
        )
    return tail


def _profile(
    number: int,
    launch: Mapping[str, Any],
    runs: Sequence[Dispatch],
    counters: Mapping[str, float],
    arch: str,
    device: str,
) -> Profile:
    architecture = OFFLINE.get(arch)
    row = next((run.row for run in runs if run.row), {})
    durations = sorted(d for run in runs if (d := _duration_us(run)) is not None)
    grid, block = _triple(launch["grid"]), _triple(launch["block"])
    figures: dict[str, Any] = {name: rule(counters) for name, rule in _RULES.items()}
    figures["dram_read_bytes"], figures["dram_write_bytes"] = _dram_bytes(counters, architecture)
    figures["registers"] = _plus(_number(row.get("VGPR_Count", "")), _number(row.get("Accum_VGPR_Count", "0")))
    figures["lds_bytes"] = _number(row.get("LDS_Block_Size", ""))
    figures["scratch_bytes"] = _number(row.get("Scratch_Size", ""))
    figures["duration_us"] = durations[len(durations) // 2] if durations else None
    figures |= residency(architecture, figures, grid, block)
    moved, took = _plus(figures["dram_read_bytes"], figures["dram_write_bytes"]), figures["duration_us"]
    if architecture is not None and moved is not None and took:
        figures["dram_throughput_pct"] = 100.0 * moved / (took * 1e-6) / architecture.bandwidth
    return Profile(
        kernel=str(launch["kernel"]),
        target=ROCM.name,
        number=number,
        device=device,
        architecture=arch,
        units=architecture.cus if architecture else None,
        grid=grid,
        block=block,
        stalls=_stalls(counters),
        **figures,
    )


def _duration_us(run: Dispatch) -> float | None:
    source = run.trace or run.row
    start, end = _number(source.get("Start_Timestamp", "")), _number(source.get("End_Timestamp", ""))
    return (end - start) / 1000.0 if start is not None and end is not None and end > start else None


def residency(
    architecture: Architecture | None,
    figures: Mapping[str, float | None],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
) -> dict[str, float | None]:
    """How many waves could be resident, and how often the blocks fill the device, by the architecture's limits."""
    registers, lds = figures["registers"], figures["lds_bytes"]
    if architecture is None or registers is None or lds is None:
        return {}
    threads = math.prod(block)
    waves = isa.occupancy(architecture, int(registers), int(lds), threads) * architecture.simds_per_cu
    blocks_each = max(1, waves // math.ceil(threads / architecture.wave))
    most = architecture.max_waves_per_simd * architecture.simds_per_cu
    return {
        "occupancy_limit_pct": 100.0 * min(waves, most) / most,
        "rounds": math.prod(grid) / (blocks_each * architecture.cus),
    }


def _ratio(top: str, bottom: str, factor: float = 100.0) -> Callable[[Mapping[str, float]], float | None]:
    def rule(c: Mapping[str, float]) -> float | None:
        return factor * c[top] / c[bottom] if top in c and c.get(bottom, 0.0) > 0 else None

    return rule


def _l2_hit(c: Mapping[str, float]) -> float | None:
    hit, miss = c.get("TCC_HIT_sum"), c.get("TCC_MISS_sum")
    return 100.0 * hit / (hit + miss) if hit is not None and miss is not None and hit + miss > 0 else None


def _l1_hit(c: Mapping[str, float]) -> float | None:
    total = c.get("TCP_TOTAL_CACHE_ACCESSES_sum", 0.0)
    missed = _plus(c.get("TCP_TCC_READ_REQ_sum"), c.get("TCP_TCC_WRITE_REQ_sum"))
    return max(0.0, 100.0 * (1.0 - missed / total)) if total > 0 and missed is not None else None


def _coalescing(c: Mapping[str, float]) -> float | None:
    waves, accesses = c.get("TA_TOTAL_WAVEFRONTS_sum"), c.get("TCP_TOTAL_ACCESSES_sum", 0.0)
    return min(100.0, 100.0 * 64.0 * waves / (4.0 * accesses)) if waves is not None and accesses > 0 else None


_RULES: dict[str, Callable[[Mapping[str, float]], float | None]] = {
    "l2_hit_pct": _l2_hit,
    "l1_hit_pct": _l1_hit,
    "coalescing_pct": _coalescing,
    "valu_pct": lambda c: c.get("VALUBusy"),
    "matrix_pct": lambda c: c.get("MfmaUtil"),
    "lanes_pct": lambda c: c.get("VALUUtilization"),
    "occupancy_pct": lambda c: c.get("OccupancyPercent"),
    "active_waves": lambda c: c.get("MeanOccupancyPerCU"),
    "waves": lambda c: c.get("SQ_WAVES"),
    "ipc": _ratio("SQ_INSTS", "SQ_BUSY_CU_CYCLES", 0.25),  # the cycles are counted in fours
    "lds_bank_conflicts": lambda c: c.get("SQ_LDS_BANK_CONFLICT"),
    "lds_conflict_pct": _ratio("SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"),
}


def _dram_bytes(c: Mapping[str, float], architecture: Architecture | None) -> tuple[float | None, float | None]:
    """(bytes read, bytes written) by L2's requests to memory; None where they were not counted.

    Reads are of 64 bytes but for those counted apart as of 32 and, where the architecture counts them, of 128.
    """
    if architecture is None or not architecture.memory_counter:
        return None, None
    prefix = architecture.memory_counter
    total, small = c.get(f"{prefix}_RDREQ_sum"), c.get(f"{prefix}_RDREQ_32B_sum")
    large = c.get("TCC_BUBBLE_sum") if architecture.counts_128_byte_reads else 0.0
    read = None
    if total is not None and small is not None and large is not None:
        read = 128.0 * large + 32.0 * small + 64.0 * max(0.0, total - large - small)
    stores, whole = c.get(f"{prefix}_WRREQ_sum"), c.get(f"{prefix}_WRREQ_64B_sum")
    written = None if stores is None or whole is None else 64.0 * whole + 32.0 * max(0.0, stores - whole)
    return read, written


def _stalls(c: Mapping[str, float]) -> dict[str, float]:
    """SQ_WAVE_CYCLES are those of waves that issue, that wait for their turn, and that wait for memory or a barrier."""
    parts = {"memory or barrier": c.get("SQ_WAIT_ANY", 0.0), "issue": c.get("SQ_WAIT_INST_ANY", 0.0)}
    if not any(parts.values()):
        return {}
    shares = share_of({**parts, "working": c.get("SQ_ACTIVE_INST_ANY", 0.0)})
    return {name: value for name, value in shares.items() if name != "working"}


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def _triple(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = values
    return int(x), int(y), int(z)
