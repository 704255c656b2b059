"""NVIDIA's counters: which ones Nsight Compute is asked for, and its `--csv --page raw` text as Profiles.

The text has one header line with the metric names, one line of units below it, and a line a launch; numbers may have
separators of thousands, times and bytes any prefix. Lines that are not CSV (==PROF== ...) come before and between.
Metric names: Nsight Compute documentation, "Kernel Profiling Guide", metrics reference.
"""

from __future__ import annotations

import csv
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import DeviceError, InfrastructureError
from hipwright.measure.profiling.profile import Profile, share_of
from hipwright.measure.profiling.profiler_sandbox import Done, ProfilerSandbox
from hipwright.targets import CUDA

NCU_PLACES = ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu", "/usr/local/cuda/bin/ncu")
PLAIN = {
    "duration_us": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "dram_throughput_pct": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_pct": "lts__t_sector_hit_rate.pct",
    "l1_hit_pct": "l1tex__t_sector_hit_rate.pct",
    "load_efficiency_pct": "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "store_efficiency_pct": "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "sectors_per_load": "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    "matrix_pct": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "compute_throughput_pct": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "ipc": "sm__inst_executed.avg.per_cycle_active",
    "uniform_branches_pct": "smsp__sass_average_branch_targets_threads_uniform.pct",
    "occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "occupancy_limit_pct": "sm__maximum_warps_per_active_cycle_pct",
    "active_waves": "sm__warps_active.avg.per_cycle_active",
    "waves": "smsp__warps_launched.sum",
    "rounds": "launch__waves_per_multiprocessor",
    "registers": "launch__registers_per_thread",
    "lds_bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
}
"""Figures that are one metric each."""
LARGEST = {
    "valu_pct": (
        "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    ),
    "cache_throughput_pct": (
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
}
"""Figures that are the largest of several metrics."""
SUMS = {"lds_bytes": ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")}
_LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
_LDS_WORK = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_UNITS, _NAME = "device__attribute_multiprocessor_count", "device__attribute_display_name"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALL_CAUSES = {
    "long_scoreboard": "memory",
    "lg_throttle": "memory",
    "tex_throttle": "memory",
    "drain": "memory",
    "membar": "memory",
    "short_scoreboard": "lds",
    "mio_throttle": "lds",
    "barrier": "barrier",
    "wait": "dependency",
    "math_pipe_throttle": "pipe",
    "gmma": "pipe",
    "not_selected": "issue",
    "dispatch_stall": "issue",
    "no_instruction": "instruction",
    "imc_miss": "instruction",
    "branch_resolving": "branch",
    "sleeping": "other",
    "misc": "other",
}
"""Nsight Compute's stall reasons, by the cause in `Profile.stalls`."""

METRICS: tuple[str, ...] = (
    *PLAIN.values(),
    *(name for group in (*LARGEST.values(), *SUMS.values()) for name in group),
    _LANES,
    _LDS_WORK,
    _UNITS,
    _NAME,
    *(_STALL.format(reason) for reason in STALL_CAUSES),
)
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES_US = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
_COLUMNS = ("Kernel Name", "Block Size", "Grid Size")
_MISSING = ("n/a", "nan", "-nan", "inf", "")

_NO_PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters")


class CountersDenied(DeviceError):
    """The driver does not let this process read the counters."""


class NsightCompute:
    """Profiles with ncu, which replays each launch for as many passes as the metrics need."""

    program = "ncu"
    install = "install Nsight Compute (part of the CUDA toolkit), or put ncu on PATH"

    def places(self) -> list[Path]:
        """The installations, then PATH, where CUDA puts a script that searches for them (not usable in the sandbox)."""
        patterns = [sorted(Path("/").glob(place.lstrip("/")), reverse=True) for place in NCU_PLACES]
        return [*(path for group in patterns for path in group), Path(shutil.which("ncu") or "/-")]

    def measure(
        self, place: ProfilerSandbox, runner: Sequence[str], arch: str, launches: Callable[[Done], list[dict[str, Any]]]
    ) -> tuple[list[Profile], list[str]]:
        """One run. Raises CountersDenied, and what `launches` raises."""
        done = place.run(command(runner, ncu=str(place.tool)))
        launches(done)
        return parse(done.stdout + done.stderr), []


def command(program: Sequence[str], *, ncu: str) -> list[str]:
    """The command line that profiles what `program` launches between cudaProfilerStart and Stop."""
    return [
        ncu,
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--print-fp",
        "--profile-from-start",
        "off",
        "--clock-control",
        "none",
        "--kernel-name-base",
        "function",
        "--metrics",
        ",".join(METRICS),
        *program,
    ]


def parse(text: str) -> list[Profile]:
    """The launches in what ncu printed, in order, without bottlenecks.

    Raises InfrastructureError for a text without a table of launches, and CountersDenied.
    """
    check_permission(text)
    rows = _rows(text)
    if not rows:
        raise InfrastructureError(f"ncu printed no table of launches: {_last_words(text)}")
    header, units, *launches = rows
    if len(units) != len(header) or units[0].strip():
        raise InfrastructureError("ncu's table has no line of units below its header")
    named = dict(zip(header, units, strict=True))
    whole = [row for row in launches if len(row) == len(header)]  # a shorter one was cut off
    profiles = [_profile(dict(zip(header, row, strict=True)), named) for row in whole]
    return [msgspec.structs.replace(profile, number=number) for number, profile in enumerate(profiles)]


def check_permission(text: str) -> None:
    """Raise CountersDenied where ncu says so."""
    if _NO_PERMISSION.search(text):
        raise CountersDenied(
            "this user may not read the GPU's performance counters",
            hint="run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 "
            "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
        )


def _rows(text: str) -> list[list[str]]:
    """The CSV lines, from the header on; [] without one."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    try:
        rows = list(csv.reader(lines))
    except csv.Error as error:
        raise InfrastructureError(f"ncu's table is not CSV: {error}") from None
    starts = [i for i, row in enumerate(rows) if row[:1] == ["ID"] and all(name in row for name in _COLUMNS)]
    return rows[starts[0] :] if starts and len(rows) > starts[0] + 1 else []


def _profile(row: Mapping[str, str], units: Mapping[str, str]) -> Profile:
    def figure(metric: str) -> float | None:
        return number(row.get(metric, ""), units.get(metric, ""))

    found: dict[str, Any] = {name: figure(metric) for name, metric in PLAIN.items()}
    for name, group in LARGEST.items():
        found[name] = max((value for metric in group if (value := figure(metric)) is not None), default=None)
    for name, group in SUMS.items():
        parts = [figure(metric) for metric in group]
        found[name] = None if None in parts else sum(part for part in parts if part is not None)
    lanes, work, conflicts = figure(_LANES), figure(_LDS_WORK), found["lds_bank_conflicts"]
    found["lanes_pct"] = None if lanes is None else 100.0 * lanes / 32
    if work and conflicts is not None:
        found["lds_conflict_pct"] = min(100.0, 100.0 * conflicts / work)
    count, stalls = figure(_UNITS), dict[str, float]()
    for reason, cause in STALL_CAUSES.items():
        stalls[cause] = stalls.get(cause, 0.0) + max(0.0, figure(_STALL.format(reason)) or 0.0)
    return Profile(
        kernel=row["Kernel Name"],
        target=CUDA.name,
        device=row.get(_NAME, ""),
        architecture=f"sm_{row['CC'].replace('.', '')}" if row.get("CC") else "",
        units=int(count) if count else None,
        grid=triple(row["Grid Size"]),
        block=triple(row["Block Size"]),
        stalls=share_of(stalls),
        **found,
    )


def number(text: str, unit: str) -> float | None:
    """A printed value in the Profile's own unit (microseconds, bytes, percent, counts); None for none."""
    plain = text.strip().replace(",", "")
    if plain.lower() in _MISSING:
        return None
    try:
        value = float(plain)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    unit = unit.strip()
    if unit in _TIMES_US:
        return value * _TIMES_US[unit]
    prefixed = re.match(r"([KMGT]?)bytes?\b", unit, re.IGNORECASE)
    return value * _FACTORS[prefixed[1].lower()] if prefixed else value


def triple(text: str) -> tuple[int, int, int] | None:
    """ "(256, 1, 1)" as numbers."""
    numbers = [int(found) for found in re.findall(r"\d+", text)]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if "==ERROR==" in line or "==WARNING==" in line] or lines
    return " | ".join(messages[-4:])[-600:] or "nothing"
