"""A static estimate of a program's time on a GPU from its build: roofline + occupancy + instruction mix.

AMD's builds provide the mix of their assembly, NVIDIA's that of their PTX. An estimate is never a measurement: it ranks
candidates on a machine without a GPU. The model per launch, in seconds:

- memory: bytes / (bandwidth * e). By Little's law a CU reaches its share of the bandwidth only with enough bytes in
  flight: e = min(1, resident waves * lanes * bytes a lane keeps outstanding / (bandwidth per CU * latency)).
- issue: dynamic instructions by class / issue rate of the CUs that have work. A static count becomes a dynamic one by
  the trip count that makes the kernel's vector memory instructions move the launch's bytes.
- the larger of the two, extended by the last partial round of blocks, plus a launch.

Bytes are those of the launch's tensor arguments (twice those of one that is read and written), or those that the
checked CPU run counted when it counted more (a second pass over a row); re-read bytes are charged at cache, not memory,
bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod
from typing import Any, Literal

from hipwright.measure.cost import base_name, is_product, op_bytes, op_flops, op_seconds, tensor_bytes
from hipwright.records import Build, Estimate, KernelResources
from hipwright.targets import NVIDIA, Architecture

MEMORY_LATENCY = 800e-9  # s, HBM under load
CACHE_SPEEDUP = 3.0  # L2 and Infinity Cache over HBM bandwidth
LAUNCH = 3e-6  # s, back to back in one stream
LIBRARY_EFFICIENCY = 0.7  # of the roofline
PASSES = {"topk": 5, "kthvalue": 5, "sort": 8, "argsort": 8, "msort": 8}
"""How often a library's selection or sort passes over its bytes: radix methods read once for each of four digits of 8
bits, a selection once more for its result, and a sort writes each time (Satish, Harris & Garland 2009, "Designing
efficient sorting algorithms for manycore GPUs").
"""
# issue cycles of one wave64 instruction on its SIMD, by class (CDNA3 ISA guide: 16 lanes a cycle, quarter-rate
# transcendentals); LDS and vector memory share one pipe for the CU's SIMDs
ISSUE_CYCLES = {
    "valu": 4,
    "salu": 1,
    "trans": 16,
    "mfma": 32,
    "lds": 8,
    "vmem_load": 16,
    "vmem_store": 16,
    "smem": 1,
    "branch": 4,
    "barrier": 32,
    "wave": 8,
    "other": 1,
}
# the same of one warp on its partition of an SM (CUDA C++ Programming Guide, "Arithmetic Instructions": results a cycle
# and SM over 4 partitions); a PTX move costs nothing
WARP_ISSUE_CYCLES = {
    "valu": 1,
    "trans": 8,
    "mfma": 16,
    "lds": 4,
    "vmem_load": 4,
    "vmem_store": 4,
    "smem": 2,
    "branch": 2,
    "barrier": 16,
    "wave": 4,
    "other": 0,
}
OUTSTANDING_LOADS = 4  # loads a wave keeps in flight before it waits

Bound = Literal["memory", "compute", "latency", "launch"]


def estimate(
    architecture: Architecture,
    build: Build,
    launches: Sequence[Mapping[str, Any]],
    library: Sequence[Mapping[str, Any]],
    floor_bytes: float,
    traffic: Mapping[str, float] | None = None,
) -> Estimate:
    """Microseconds a call on `architecture`.

    launches and library are `program.trace` records at the workload's shapes; floor_bytes is what the task itself must
    move; traffic maps a kernel to counted bytes / argument bytes (>= 1) from the checked CPU run.
    """
    kernels = {kernel.name: kernel for kernel in build.kernels}
    rows = [
        _launch(architecture, kernels[item["kernel"]], item, (traffic or {}).get(item["kernel"], 1.0))
        for item in launches
        if item["kernel"] in kernels
    ]
    rows += [row for call in library if (row := _library(architecture, call))]
    seconds = sum(row["seconds"] for row in rows)
    floor = floor_bytes / architecture.bandwidth + sum(_product_seconds(architecture, call) for call in library)
    heaviest = max(rows, key=lambda row: row["seconds"], default=None)
    return Estimate(
        target=architecture.name,
        microseconds=round(seconds * 1e6, 4),
        bound=heaviest["bound"] if heaviest else "launch",
        roofline_fraction=round(min(1.0, floor / seconds), 4) if seconds else 0.0,
        detail=tuple(rows),
    )


def library_seconds(architecture: Architecture, call: Mapping[str, Any]) -> float:
    """Seconds of one library operator with its launch, as a `program.trace` record; 0 for views."""
    row = _library(architecture, call)
    return float(row["seconds"]) if row else 0.0


def least_seconds(architecture: Architecture, moved: float, calls: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of one launch that moves these bytes once and computes the products of the operators at the roofline."""
    products = sum(_product_seconds(architecture, call) for call in calls)
    return LAUNCH + max(moved / architecture.bandwidth, products)


def _launch(
    architecture: Architecture, kernel: KernelResources, item: Mapping[str, Any], traffic: float
) -> dict[str, Any]:
    threads, blocks = prod(item["block"]), prod(item["grid"])
    waves = blocks * ceil(threads / architecture.wave)
    tensors = [arg for arg in item["args"] if isinstance(arg, Mapping)]
    needed = float(sum(tensor_bytes(arg) * (2 if arg.get("updated") else 1) for arg in tensors))
    resident = _resident_waves(architecture, kernel, threads, int(item["lds"]))
    busy = min(architecture.cus, blocks)
    in_flight = min(resident, waves / busy) * architecture.wave * _outstanding_bytes(kernel)
    saturation = min(1.0, in_flight / (architecture.bandwidth / architecture.cus * MEMORY_LATENCY))
    efficiency = saturation * busy / architecture.cus
    rereads = needed * max(0.0, traffic - 1.0)
    memory = (needed + rereads / CACHE_SPEEDUP) / (architecture.bandwidth * max(efficiency, 1e-4))
    issue = _issue_seconds(architecture, kernel, waves, busy, needed + rereads)
    slots = busy * max(1.0, resident * architecture.wave / max(threads, architecture.wave))
    tail = ceil(blocks / slots) * slots / blocks if blocks > slots else 1.0
    work = max(memory, issue) * min(tail, 2.0)
    bound: Bound = "launch" if work < LAUNCH else ("memory" if memory >= issue else "compute")
    if bound == "memory" and efficiency < 0.5:
        bound = "latency"
    return {
        "kind": "kernel",
        "name": kernel.name,
        "seconds": work + LAUNCH,
        "bytes": needed,
        "reread_bytes": rereads,
        "memory_seconds": memory,
        "issue_seconds": issue,
        "bandwidth_efficiency": round(efficiency, 4),
        "resident_waves_per_cu": resident,
        "bound": bound,
    }


def _resident_waves(architecture: Architecture, kernel: KernelResources, threads: int, dynamic_lds: int) -> int:
    """Waves that fit on one CU at once, by registers, by LDS and by whole blocks."""
    per_block = ceil(threads / architecture.wave)
    by_registers = max(1, kernel.occupancy or architecture.max_waves_per_simd) * architecture.simds_per_cu
    lds = kernel.lds_bytes + dynamic_lds
    by_lds = (architecture.lds_per_cu // lds) * per_block if lds else by_registers
    return max(per_block, min(by_registers, by_lds) // per_block * per_block)


def _outstanding_bytes(kernel: KernelResources) -> float:
    loads = max(1, kernel.instructions.get("vmem_load", 0))
    stores = kernel.instructions.get("vmem_store", 0)
    average = kernel.vmem_bytes / (loads + stores) if kernel.vmem_bytes else 4.0
    return average * min(loads, OUTSTANDING_LOADS)


def _issue_seconds(architecture: Architecture, kernel: KernelResources, waves: int, busy: int, moved: float) -> float:
    per_pass = waves * architecture.wave * max(kernel.vmem_bytes, 1)
    trips = max(1.0, moved / per_pass) if kernel.vmem_bytes else 1.0
    warps = architecture.vendor == NVIDIA
    costs, share = (WARP_ISSUE_CYCLES, 1.0) if warps else (ISSUE_CYCLES, architecture.wave / 64)
    cycles = sum(costs.get(kind, 1) * count for kind, count in kernel.instructions.items())
    simds = busy * architecture.simds_per_cu
    return waves * trips * cycles * share / (min(simds, waves) * architecture.clock_hz)


def _library(architecture: Architecture, call: Mapping[str, Any]) -> dict[str, Any] | None:
    if op_seconds(call) == 0.0:
        return None
    passes = PASSES.get(base_name(call["op"]), 1)
    moved, work = passes * op_bytes(call) / architecture.bandwidth, _product_seconds(architecture, call)
    seconds = max(moved, work) / LIBRARY_EFFICIENCY
    bound: Bound = "launch" if seconds < LAUNCH else ("memory" if moved >= work else "compute")
    return {"kind": "library", "name": call["op"], "seconds": seconds + LAUNCH, "bytes": op_bytes(call), "bound": bound}


def _product_seconds(architecture: Architecture, call: Mapping[str, Any]) -> float:
    """Roofline time of a matrix product, 0 for other operators."""
    if not call["in"] or not is_product(base_name(call["op"])):
        return 0.0
    rate = architecture.flops.get(call["in"][0]["dtype"]) or architecture.flops["float32"]
    return op_flops(call) / rate
