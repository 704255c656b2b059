"""A profile without hardware: what a simulated GPU executes, counted, and a time by the rates of the documents.

The counts are exact for the machine code and the inputs; caches, LDS banks and the time are models (docs/profile.md).
Every record says ESTIMATE (SIMULATED).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import CandidateError
from hipwright.measure.profiling.amd import residency
from hipwright.measure.profiling.bottleneck import diagnose
from hipwright.measure.profiling.profile import KernelBottleneck, Kind, Profile
from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileReport
from hipwright.measure.profiling.simulated_process import SERVICE
from hipwright.records import KernelResources
from hipwright.sandbox import Limits, Zygote
from hipwright.targets import TARGETS, Architecture
from hipwright.toolchain.amd import isa
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import runtime

BASIS = "ESTIMATE (SIMULATED)"
LAUNCH_LIMIT_S, CALL_LIMIT_S = 120.0, 600.0
L1_BYTES_A_CYCLE = 64  # of a CU's vector cache
_PRODUCT = re.compile(r"v_(?:mfma|smfmac|wmma)_\w+?_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(\w*)")
_TYPES = {"f64": "float64", "xf32": "float32", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8"}
_TYPES |= {"iu8": "int8", "fp8": "float8", "bf8": "float8"}
_UNITS: dict[str, tuple[Kind, str]] = {
    "scalar": ("compute", "scalar instructions"),
    "branch": ("compute", "branches"),
    "lds": ("lds", "LDS accesses"),
}
NOTES = (
    "counted by a simulator and timed by a model: no GPU ran, and how well its order agrees with hardware is not known",
    "caches begin empty; blocks are spread over the dies in turn and run one after another",
)


def profile_simulated(
    subject: ProfiledProgram, cache: BuildCache, *, unsafe: bool = False, limit_s: float = CALL_LIMIT_S
) -> ProfileReport:
    """Profiles one call of a program that is built for a simulated target, contained. limit_s: seconds of the call.

    Raises CandidateError for what the program does wrong, DeviceError for an instruction that the simulator lacks.
    """
    target = subject.job.target
    init = {"target": target, "text": subject.job.text, "knobs": subject.job.knobs, "launch_limit_s": LAUNCH_LIMIT_S}
    init |= {"executor": str(runtime.library(cache, unsafe=unsafe)), "so": str(cache.path(subject.build.blob))}
    limits = Limits(wall_s=limit_s, cpu_s=limit_s)
    preload = ("torch", SERVICE.partition(":")[0])
    with Zygote(preload, ro=(Path(cache.folder),), unsafe=unsafe, name="profiled program") as zygote:
        session = zygote.session(SERVICE, init, subject.state, limits=limits)
        try:
            reply, _ = session.call("run", {}, subject.inputs, timeout_s=limit_s)
        finally:
            session.close()
    if not reply["launches"]:
        raise CandidateError("the call launches no kernel", stage="launch")
    known = {kernel.name: kernel for kernel in subject.build.kernels}
    profiles = (
        launch_profile(number, launch, known[launch["kernel"]], target)
        for number, launch in enumerate(reply["launches"])
    )
    return ProfileReport(target=target, profiles=tuple(profiles), tool=BASIS, contained=not unsafe, notes=NOTES)


def launch_profile(number: int, launch: Mapping[str, Any], kernel: KernelResources, target: str) -> Profile:
    """The Profile of one counted launch."""
    architecture = TARGETS[target].architecture
    grid, block = (launch[name] for name in ("grid", "block"))
    counted = Counts(launch, architecture)
    registers, lds = float(kernel.vgpr + kernel.agpr), float(kernel.lds_bytes + launch["lds_bytes"])
    size = {"registers": registers, "lds_bytes": lds}
    figures: dict[str, Any] = {**size, "scratch_bytes": float(kernel.scratch_bytes), **counted.figures()}
    figures |= residency(architecture, size, tuple(grid), tuple(block))
    slots = architecture.cus * architecture.simds_per_cu * architecture.max_waves_per_simd
    figures["occupancy_pct"] = min(figures["occupancy_limit_pct"], 100.0 * launch["waves"] / slots)
    made = Profile(
        kernel=kernel.name,
        target=target,
        number=number,
        device=f"{architecture.name} (simulated)",
        architecture=architecture.name,
        units=architecture.cus,
        grid=tuple(grid),
        block=tuple(block),
        instructions=dict(counted.mix),
        waits={name: count for name, count in counted.waits.items() if count},
        basis=BASIS,
        **figures,
    )
    return msgspec.structs.replace(made, bottleneck=_limit(made, counted))


def _limit(made: Profile, counted: Counts) -> KernelBottleneck:
    """What takes longest by the model, where the rules for counters have no name for it."""
    found = diagnose(made)
    unit = max(counted.busy, key=lambda name: counted.busy[name])
    if found.kind != "latency" or unit not in _UNITS or (made.blocks or 0) < (made.units or 0):
        return found
    kind, what = _UNITS[unit]
    return KernelBottleneck(kind=kind, text=f"{kind} bound: {what} take longest by the model")


class Counts:
    """The sums of a launch's counts, and the cycles that its units are busy for by the architecture's rates.

    mix: executed instructions by class (`isa.CLASSES`). busy: cycles of each unit, spread evenly over those that the
    blocks can use, and "memory", by the nominal bandwidth.
    """

    def __init__(self, launch: Mapping[str, Any], architecture: Architecture) -> None:
        self._launch, self._architecture = launch, architecture
        self._rows = [{**row, "kind": isa.classify(*_words(row["text"]))} for row in launch["instructions"]]
        self.mix: Counter[str] = Counter()
        for row in self._rows:
            self.mix[row["kind"]] += row["runs"]
        self.waits = {name: sum(row[f"wait_{name}"] for row in self._rows) for name in ("memory", "lds", "scalar")}
        self.waits["barrier"] = self.mix["barrier"]
        self.busy = self._busy()

    def figures(self) -> dict[str, float | None]:
        """The figures of a Profile."""
        launch, line = self._launch, self._architecture.line_bytes
        vector = self._of("valu", "trans", "wave", "mfma", "vmem_load", "vmem_store", "lds")
        global_ = self._of("vmem_load", "vmem_store")
        cycles = max(self.busy.values())
        lds, ideal = (sum(row[name] for row in self._rows) for name in ("lds_cycles", "lds_ideal"))
        most = self._architecture.wave * sum(row["runs"] for row in vector)
        return {
            "duration_us": cycles / self._architecture.clock_hz * 1e6,
            "dram_read_bytes": float(launch["fetched"] * line),
            "dram_write_bytes": float(launch["written"] * line),
            "dram_throughput_pct": _share(self.busy["memory"], cycles),
            "l1_hit_pct": _share(launch["l1_hit"], launch["l1_hit"] + launch["l1_miss"]),
            "l2_hit_pct": _share(launch["l2_hit"], launch["l2_hit"] + launch["l2_miss"]),
            "cache_throughput_pct": _share(self.busy["l1"], cycles),
            "coalescing_pct": _share(*(sum(row[name] for row in global_) for name in ("ideal_lines", "lines"))),
            "lanes_pct": _share(sum(row["lanes"] for row in vector), most),
            "valu_pct": _share(self.busy["valu"], cycles),
            "matrix_pct": _share(self.busy["matrix"], cycles),
            "waves": float(launch["waves"]),
            "lds_bank_conflicts": float(lds - ideal),
            "lds_conflict_pct": _share(lds - ideal, lds),
        }

    def _busy(self) -> dict[str, float]:
        """Cycles by unit, from the start of the launch to its end if nothing else took time."""
        known, launch = self._architecture, self._launch
        units = min(known.cus, math.prod(launch["grid"]))
        waves_a_block = math.ceil(math.prod(launch["block"]) / known.wave)
        simds = units * min(known.simds_per_cu, max(1, waves_a_block * math.prod(launch["grid"]) // units))
        lanes = 16 if known.mfma else known.wave  # that a SIMD computes in a cycle (CDNA, RDNA: ISA documents)
        each = known.wave // lanes
        valu = each * (self.mix["valu"] + self.mix["wave"] + 4 * self.mix["trans"])
        matrix = sum(row["runs"] * product_cycles(row["text"], known) for row in self._of("mfma"))
        lines = sum(row["lines"] for row in self._rows)
        moved = (launch["fetched"] + launch["written"]) * known.line_bytes
        return {
            "valu": valu / simds,
            "matrix": matrix / simds,
            "scalar": (self.mix["salu"] + self.mix["smem"]) / units,
            "branch": self.mix["branch"] / units,
            "lds": sum(row["lds_cycles"] for row in self._rows) / units,
            "l1": lines * known.line_bytes / L1_BYTES_A_CYCLE / units,
            "memory": moved / known.bandwidth * known.clock_hz,
        }

    def _of(self, *kinds: str) -> list[dict[str, Any]]:
        return [row for row in self._rows if row["kind"] in kinds]


def product_cycles(text: str, architecture: Architecture) -> float:
    """Cycles of a SIMD for one matrix instruction, by the nominal rate of its input type; 0 for one without a rate."""
    found = _PRODUCT.match(text)
    if not found:
        return 0.0
    m, n, k = (int(size) for size in found.groups()[:3])
    operations = 2.0 * m * n * k * int(found[4] or 1)
    name = next((dtype for short, dtype in _TYPES.items() if short in found[5].split("_")), "float32")
    rate = next((rate for dtype, rate in architecture.flops.items() if dtype.startswith(name)), 0.0)
    per_cycle = rate / architecture.clock_hz / architecture.cus / architecture.simds_per_cu
    return operations / per_cycle if per_cycle else 0.0


def _words(text: str) -> tuple[str, str]:
    mnemonic, _, rest = text.partition(" ")
    return mnemonic, rest


def _share(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole else None


def mix_text(instructions: Mapping[str, int], most: int = 6) -> str:
    """The classes with the largest shares: "valu 61 %, lds 12 %"."""
    total = sum(instructions.values())
    ordered: Iterable[tuple[str, int]] = sorted(instructions.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {100 * count / total:.0f} %" for kind, count in list(ordered)[:most]) if total else ""
