"""A profile without hardware: what a simulated GPU executes, counted, and a time by the rates of the documents.

The counts are exact for the machine code and the inputs; caches, LDS banks and the time are models (docs/profile.md).
Every record says ESTIMATE (SIMULATED).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hipwright.errors import CandidateError
from hipwright.measure.profiling.amd import residency
from hipwright.measure.profiling.bottleneck import diagnose
from hipwright.measure.profiling.cycles import Counts
from hipwright.measure.profiling.profile import KernelBottleneck, Kind, Profile
from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileReport
from hipwright.measure.profiling.simulated_process import SERVICE
from hipwright.records import KernelResources
from hipwright.sandbox import Limits, Zygote
from hipwright.software_gpu import software_name
from hipwright.targets import TARGETS
from hipwright.toolchain.cache import BuildCache
from hipwright.toolchain.sim import runtime

BASIS = "ESTIMATE (SIMULATED)"
LAUNCH_LIMIT_S, CALL_LIMIT_S = 120.0, 600.0
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
    registers, lds = float(kernel.vgpr + kernel.agpr), float(kernel.lds_bytes + launch["lds_bytes"])
    counted = Counts(launch, architecture, registers, lds)
    size = {"registers": registers, "lds_bytes": lds}
    figures: dict[str, Any] = {**size, "scratch_bytes": float(kernel.scratch_bytes), **counted.figures()}
    figures |= residency(architecture, size, tuple(grid), tuple(block))
    slots = architecture.cus * architecture.simds_per_cu * architecture.max_waves_per_simd
    figures["occupancy_pct"] = min(figures["occupancy_limit_pct"], 100.0 * launch["waves"] / slots)
    made = Profile(
        kernel=kernel.name,
        target=target,
        number=number,
        device=software_name(architecture.name),
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


def mix_text(instructions: Mapping[str, int], most: int = 6) -> str:
    """The classes with the largest shares: "valu 61 %, lds 12 %"."""
    total = sum(instructions.values())
    ordered: Iterable[tuple[str, int]] = sorted(instructions.items(), key=lambda item: -item[1])
    return ", ".join(f"{kind} {100 * count / total:.0f} %" for kind, count in list(ordered)[:most]) if total else ""
