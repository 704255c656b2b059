"""The cycle model of simulated profiles: busy cycles of each unit, the time that waves wait, and a time of both.

A unit's cycles are what it would be busy for if nothing else took time, spread evenly over the units that the blocks
can use. "latency" is what the blocks take where they are too few to hide one another's waits: those that are resident
together run side by side, one such round after the other, and a block takes one wave's stalls, the longer of its
instructions in order and all of its waves' at the units' rates, and the bytes that it moves. The time is between the
largest of all these and their sum: the SMOOTH-norm, as units that are busy for about as long get in each other's way.

Every rate is nominal, or of the order of what the sources named below measured: round figures, none of them read off a
table. The form of the model (rounds of resident blocks, a norm of the units' times), SMOOTH and HOPPER's step were
chosen by the times of benchmarks/records/h200-knobs.jsonl, whose tasks are not those that the model is judged by
(benchmarks/ranks); nothing else is fitted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hipwright.measure.profiling.amd import residency
from hipwright.records import Record
from hipwright.targets import NVIDIA, Architecture
from hipwright.toolchain.amd import isa

SMOOTH = 4.0
ROUNDS = 4
"""Fewer rounds of blocks than this are counted whole: the last one is as long as the others."""
_PRODUCT = re.compile(r"v_(?:mfma|smfmac|wmma)_\w+?_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(\w*)")
_TYPES = {"f64": "float64", "xf32": "float32", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8"}
_TYPES |= {"iu8": "int8", "fp8": "float8", "bf8": "float8"}


class Rates(Record, frozen=True, kw_only=True):
    """What a family of architectures does in a cycle.

    issue: cycles of a SIMD for one instruction of a wave, by class (`isa.CLASSES`); "mfma" is by its operations where
    the class is not named. shared: cycles of a unit that the SIMDs of a CU share, by class. l1_bytes, l2_bytes: bytes
    that a CU gets in a cycle from its L1, and from L2. memory, l2, l1, lds, scalar, barrier: cycles that a wave waits
    for the unloaded unit. step: cycles from an instruction of a wave to the next one that needs its result.
    """

    issue: dict[str, float]
    shared: dict[str, float]
    l1_bytes: float
    l2_bytes: float
    memory: float
    l2: float
    l1: float
    lds: float
    scalar: float
    barrier: float
    step: float


_SCALAR = {"salu": 1.0, "smem": 1.0, "branch": 1.0}
CDNA = Rates(
    issue={"valu": 4.0, "wave": 4.0, "trans": 16.0},
    shared=_SCALAR,
    l1_bytes=64.0,
    l2_bytes=64.0,
    memory=740.0,
    l2=250.0,
    l1=120.0,
    lds=64.0,
    scalar=50.0,
    barrier=40.0,
    step=4.0,
)
"""16 lanes a cycle, transcendentals a quarter (CDNA 3 ISA guide). L1 and L2: 64 bytes, half of the L1's peak by the
CDNA 3 white paper. Latencies: round figures of the order of "Testing AMD's Giant MI300X", Chips and Cheese 2024, in
cycles of 2.1 GHz."""
RDNA = Rates(
    issue={"valu": 1.0, "wave": 1.0, "trans": 4.0},
    shared=_SCALAR,
    l1_bytes=64.0,
    l2_bytes=64.0,
    memory=600.0,
    l2=250.0,
    l1=100.0,
    lds=50.0,
    scalar=50.0,
    barrier=40.0,
    step=5.0,
)
"""One wave of 32 a cycle (RDNA 3 ISA guide); latencies are round figures."""
_WARP = {"valu": 1.0, "wave": 2.0, "trans": 2.0, "lds": 1.0, "vmem_load": 1.0, "vmem_store": 1.0}
HOPPER = Rates(
    issue={**_WARP, "salu": 0.5, "branch": 1.0},
    shared={},
    l1_bytes=64.0,
    l2_bytes=48.0,
    memory=700.0,
    l2=270.0,
    l1=40.0,
    lds=30.0,
    scalar=40.0,
    barrier=40.0,
    step=3.0,
)
"""A warp a cycle and partition, 16 special functions a cycle and SM (CUDA programming guide, "Arithmetic
instructions"); scalar instructions of AMD are those of a warp here, half of which its own compiler does once or not at
all. Latencies: round figures of the order of Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU
Architecture" (arXiv 2402.13499), the memory's with the load of a kernel."""


def rates(architecture: Architecture) -> Rates:
    """The rates of an architecture's family."""
    if architecture.vendor == NVIDIA:
        return HOPPER
    return CDNA if architecture.mfma else RDNA


class Counts:
    """The sums of a launch's counts, and the cycles that its units are busy for by the architecture's rates.

    launch: an entry of `SimLauncher.counted`; one of which only some blocks were counted stands for all of them.
    registers, lds_bytes: of a lane, and of a block. mix: executed instructions by class (`isa.CLASSES`). busy: cycles
    by unit, "memory" by the nominal bandwidth, and "latency". cycles: of the launch.
    """

    def __init__(
        self, launch: Mapping[str, Any], architecture: Architecture, registers: float = 0.0, lds_bytes: float = 0.0
    ) -> None:
        self._launch, self._architecture, self._rates = launch, architecture, rates(architecture)
        self._blocks = math.prod(launch["grid"])
        self.share = self._blocks / launch.get("blocks", self._blocks)
        self._rows = [{**row, "kind": isa.classify(*_words(row["text"]))} for row in launch["instructions"]]
        self.mix: Counter[str] = Counter()
        for row in self._rows:
            self.mix[row["kind"]] += round(row["runs"] * self.share)
        self.waves = launch["waves"] * self.share
        self.waits = {name: round(self._sum(f"wait_{name}")) for name in ("memory", "lds", "scalar")}
        self.waits["barrier"] = self.mix["barrier"]
        self.busy = self._busy()
        self.busy["latency"] = self._latency(registers, lds_bytes)
        self.cycles = sum(one**SMOOTH for one in self.busy.values()) ** (1 / SMOOTH)

    @property
    def microseconds(self) -> float:
        """The estimated time without the launch itself."""
        return float(self.cycles / self._architecture.clock_hz * 1e6)

    def figures(self) -> dict[str, float | None]:
        """The figures of a Profile."""
        launch, line = self._launch, self._architecture.line_bytes
        vector = ("valu", "trans", "wave", "mfma", "vmem_load", "vmem_store", "lds")
        global_ = ("vmem_load", "vmem_store")
        lds, ideal = self._sum("lds_cycles"), self._sum("lds_ideal")
        most = self._architecture.wave * self._sum("runs", *vector)
        return {
            "duration_us": self.microseconds,
            "dram_read_bytes": launch["fetched"] * self.share * line,
            "dram_write_bytes": launch["written"] * self.share * line,
            "dram_throughput_pct": _share(self.busy["memory"], self.cycles),
            "l1_hit_pct": _share(launch["l1_hit"], launch["l1_hit"] + launch["l1_miss"]),
            "l2_hit_pct": _share(launch["l2_hit"], launch["l2_hit"] + launch["l2_miss"]),
            "cache_throughput_pct": _share(max(self.busy["l1"], self.busy["l2"]), self.cycles),
            "coalescing_pct": _share(self._sum("ideal_lines", *global_), self._sum("lines", *global_)),
            "lanes_pct": _share(self._sum("lanes", *vector), most),
            "valu_pct": _share(self.busy["valu"], self.cycles),
            "matrix_pct": _share(self.busy["matrix"], self.cycles),
            "waves": self.waves,
            "lds_bank_conflicts": lds - ideal,
            "lds_conflict_pct": _share(lds - ideal, lds),
        }

    def _busy(self) -> dict[str, float]:
        """Cycles by unit, from the start of the launch to its end if nothing else took time."""
        known, family, launch = self._architecture, self._rates, self._launch
        units = min(known.cus, self._blocks)
        simds = units * min(known.simds_per_cu, max(1, round(self.waves / units)))
        issue = sum(family.issue.get(kind, 0.0) * count for kind, count in self.mix.items())
        matrix = self.share * sum(
            row["runs"] * product_cycles(row["text"], known) for row in self._rows if row["kind"] == "mfma"
        )
        shared = {kind: family.shared.get(kind, 0.0) * self.mix[kind] / units for kind in ("salu", "smem", "branch")}
        beyond = launch["l1_miss"] * self.share + self._sum("lines", "vmem_store")
        moved = (launch["fetched"] + launch["written"]) * self.share * known.line_bytes
        return {
            "valu": issue / simds,
            "matrix": matrix / simds,
            "scalar": shared["salu"] + shared["smem"],
            "branch": shared["branch"],
            "lds": self._sum("lds_cycles") / units,
            "l1": self._sum("lines") * known.line_bytes / family.l1_bytes / units,
            "l2": beyond * known.line_bytes / family.l2_bytes / units,
            "memory": moved / known.bandwidth * known.clock_hz,
        }

    def _latency(self, registers: float, lds_bytes: float) -> float:
        """Cycles of the rounds of resident blocks, each as long as a block by itself."""
        launch, family = self._launch, self._rates
        size = {"registers": registers, "lds_bytes": lds_bytes}
        rounds = residency(self._architecture, size, tuple(launch["grid"]), tuple(launch["block"])).get("rounds") or 1.0
        stalls = self._sum("stall_memory") * self._memory_latency() + self._sum("stall_lds") * family.lds
        stalls += self._sum("stall_scalar") * family.scalar + family.barrier * self.mix["barrier"]
        each = self._blocks / min(self._architecture.cus, self._blocks)  # blocks that a CU runs
        computing = max(self.busy["valu"], self.busy["matrix"], self.busy["lds"]) / each
        moving = max(self.busy["memory"], self.busy["l2"]) / each
        block = stalls / self.waves + max(family.step * sum(self.mix.values()) / self.waves, computing) + moving
        return float(max(1.0, rounds if rounds > ROUNDS else math.ceil(rounds)) * block)

    def _memory_latency(self) -> float:
        """Cycles of a load in the mean, by where its lines are found."""
        launch, family = self._launch, self._rates
        first = launch["l1_hit"] / max(1, launch["l1_hit"] + launch["l1_miss"])
        fetched = min(1.0, launch["fetched"] / max(1, launch["l1_miss"]))
        return float(first * family.l1 + (1 - first) * (fetched * family.memory + (1 - fetched) * family.l2))

    def _sum(self, name: str, *kinds: str) -> float:
        """A count over all instructions, or those of some classes, of all blocks."""
        return float(self.share * sum(row.get(name, 0) for row in self._rows if not kinds or row["kind"] in kinds))


def call_microseconds(
    launches: Sequence[Mapping[str, Any]], kernels: Mapping[str, Any], architecture: Architecture, launch_s: float
) -> float:
    """Microseconds of a call by the model: its launches one after the other. kernels: their resources by name."""
    total = 0.0
    for launch in launches:
        kernel = kernels[launch["kernel"]]
        registers, lds = float(kernel.vgpr + kernel.agpr), float(kernel.lds_bytes + launch["lds_bytes"])
        total += Counts(launch, architecture, registers, lds).microseconds + launch_s * 1e6
    return total


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
