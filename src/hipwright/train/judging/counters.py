"""Hardware counters as metrics of a reward (docs/profile.md, docs/rewards.md).

A profiled call takes seconds, which suits rejection fine-tuning and small runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from hipwright.errors import DeviceError
from hipwright.machine import Workbench
from hipwright.measure.profiling.profile import Profile
from hipwright.measure.profiling.profiler import ProfiledProgram, ProfileJob, profile_program
from hipwright.records import Build, Program
from hipwright.toolchain.cache import BuildCache

INPUT_SEED = 0
COUNTED = tuple(name for name in Profile.__struct_fields__ if name.endswith("_pct") and name != "lds_conflict_pct")
"""The figures of `measure.profiling.profile` that are percentages where more is better."""


def counters(
    bench: Workbench, kind: str, index: int, program: Program, build: Build, cache: BuildCache, *, unsafe: bool = False
) -> dict[str, float]:
    """`shares` of one call of a correct program on GPU `index`. kind: a GPU target's name.

    Raises what `profile_program` raises, and DeviceError where it saw none of the program's kernels.
    """
    handle = bench.handle
    job = ProfileJob(target=kind, text=program.text, knobs=program.knobs)
    inputs, state = handle.inputs(handle.task.workloads[0].name, INPUT_SEED), handle.init_state(INPUT_SEED)
    architecture = bench.evaluator.gpus[kind].gpu.architecture
    subject = ProfiledProgram(job, architecture, build, cache.get(build.blob), inputs, state)
    found = shares(profile_program(subject, index=index, unsafe=unsafe).profiles)
    if not found:
        raise DeviceError("the profiler saw none of the program's kernels")
    return found


def shares(profiles: Sequence[Profile]) -> dict[str, float]:
    """{"dram_throughput", "occupancy", ...}: the `COUNTED` figures of the program's own kernels as shares from 0 to 1.

    Each is a mean weighted by the launches' device time. Figures that no launch has are left out.
    """
    own = [one for one in profiles if one.own]
    found = {}
    for name in COUNTED:
        known = [(getattr(one, name), one.duration_us or 0.0) for one in own if getattr(one, name) is not None]
        total = sum(weight for _, weight in known)
        if total > 0.0:
            mean = sum(value * weight for value, weight in known) / total / 100.0
            found[name.removesuffix("_pct")] = round(min(1.0, max(0.0, mean)), 4)
    return found
