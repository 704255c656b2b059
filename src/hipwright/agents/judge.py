"""The judge role: names exactly one bottleneck of a verified program, the aim of the next change (after CudaForge).

The engine's rules read a profile's counters where the run has them, else the static estimate, the compiler's resource
report and the instruction mix, or a timing. A model may be asked instead; its answer counts only if it names one thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hipwright.agents.base import render
from hipwright.agents.evidence import clean, counter_lines, figures, program_block, resources
from hipwright.archive import Counted
from hipwright.measure.estimate import ISSUE_CYCLES, LAUNCH
from hipwright.measure.fit import FITTED
from hipwright.records import Estimate, Evaluation, KernelResources, Program, Record, TargetResult
from hipwright.targets import OFFLINE

NAME = "judge"
WIDE_BYTES = 16  # a lane's widest load or store
FEW_WAVES = 4  # waves per SIMD: below it, memory latency is hardly hidden
AT_ROOFLINE = 0.85  # share of the roofline from which the rest is model noise
REREAD_SHARE = 0.5  # of the bytes needed once, above which rereads are the bottleneck
LAUNCH_SHARE = 0.5  # of the time, above which launches are the bottleneck
MIX_SHARE = 0.4  # of the issue cycles, from which one class of instructions is the bottleneck


class ProgramBottleneck(Record, frozen=True, kw_only=True):
    """The bottleneck of a program. name: a short tag; what: the finding with its figures; advice: what to try.

    kernel: the one that it is of, "" where it is of the whole program.
    """

    name: str
    what: str
    advice: str = ""
    kernel: str = ""

    @property
    def text(self) -> str:
        """The bottleneck as one line for a prompt."""
        return f"{self.name}: {self.what}" + (f" {self.advice}" if self.advice else "")


def bottleneck(evaluation: Evaluation, counted: Counted | None = None) -> ProgramBottleneck | None:
    """The bottleneck by the engine's rules; None for a program without figures. counted: the run's record of it."""
    if not evaluation.passed:
        return None
    if counted is not None and counted.profiled and counted.limit:
        return ProgramBottleneck(name=counted.limit, what=counted.text, advice=counted.advice, kernel=counted.kernel)
    estimated = {name: r for name, r in evaluation.targets.items() if r.estimate is not None and r.estimate.detail}
    if estimated:
        # the target farthest from its roofline; ties by name
        name = min(sorted(estimated), key=lambda n: _fraction(estimated[n]))
        found = next(_found(name, estimated[name]))
        return msgspec.structs.replace(found, kernel=_limiting_kernel(estimated[name]))
    timed = next((r for _, r in sorted(evaluation.targets.items()) if r.timing is not None), None)
    return _timed(timed) if timed is not None else None


def _fraction(result: TargetResult) -> float:
    return result.estimate.roofline_fraction if result.estimate else 1.0


def _limiting_kernel(result: TargetResult) -> str:
    """The kernel with the longest estimated launch; "" where a library call takes longest."""
    parts = [row for row in (result.estimate.detail if result.estimate else ()) if row["kind"] != FITTED]
    longest = min(parts, key=lambda row: (-row["seconds"], row["name"]))
    return "" if longest["kind"] == "library" else str(longest["name"])


def _found(target: str, result: TargetResult) -> Iterator[ProgramBottleneck]:
    """Yields findings, the most important first; the last rule always applies."""
    estimate: Estimate | None = result.estimate
    parts = [row for row in (estimate.detail if estimate else ()) if row["kind"] != FITTED]
    rows = sorted(parts, key=lambda row: (-row["seconds"], row["name"]))
    whole, row = sum(item["seconds"] for item in rows), rows[0]
    if len(rows) > 1 and LAUNCH * len(rows) > LAUNCH_SHARE * whole:
        yield ProgramBottleneck(
            name="launches",
            what=f"{len(rows)} launches cost {LAUNCH * len(rows) / whole:.0%} of the estimated time on {target}.",
            advice="Fuse kernels or library calls, so that fewer launches remain.",
        )
    if row["kind"] == "library":
        yield ProgramBottleneck(
            name="library",
            what=f"the library's {row['name']} takes {row['seconds'] / whole:.0%} of the estimated time on {target}.",
            advice="Write it as a kernel of your own, or fuse what stands before or after it into one.",
        )
    kernels = result.build.kernels if result.build else ()
    kernel = next((one for one in kernels if one.name == row["name"]), KernelResources(name=row["name"]))
    yield from _kernel(target, row, kernel)


def _kernel(target: str, row: Mapping[str, Any], kernel: KernelResources) -> Iterator[ProgramBottleneck]:
    name, most = kernel.name, OFFLINE[target].max_waves_per_simd if target in OFFLINE else 8
    if kernel.spills or kernel.scratch_bytes:
        yield ProgramBottleneck(
            name="spills",
            what=f"{name} spills {kernel.spills} registers to {kernel.scratch_bytes} bytes of scratch.",
            advice="Keep fewer values alive: smaller tiles for each thread, less unrolling, or a launch bound.",
        )
    if row["bound"] == "launch":
        yield ProgramBottleneck(
            name="launch",
            what=f"{name}'s work is shorter than its launch ({1e6 * row['seconds']:.3g} us in all on {target}).",
            advice="Only less work per launch or fewer passes help here; do not add complexity.",
        )
    if row.get("reread_bytes", 0.0) > REREAD_SHARE * max(row["bytes"], 1.0):
        yield ProgramBottleneck(
            name="rereads",
            what=f"{name} reads {row['reread_bytes']:.3g} bytes again on top of {row['bytes']:.3g} needed once.",
            advice="Keep what was read in registers or LDS, or use a one-pass form of the reduction.",
        )
    if row["bound"] in ("memory", "latency"):
        yield from _memory(target, row, kernel, most)
    yield _compute(target, row, kernel)


def _memory(target: str, row: Mapping[str, Any], kernel: KernelResources, most: int) -> Iterator[ProgramBottleneck]:
    busy = f"{row['bandwidth_efficiency']:.0%} of {target}'s bandwidth is reached"
    if row["bandwidth_efficiency"] < AT_ROOFLINE and kernel.widest_vmem_bytes < WIDE_BYTES:
        yield ProgramBottleneck(
            name="narrow_access",
            what=f"{kernel.name} moves at most {kernel.widest_vmem_bytes} bytes a lane and access; {busy}.",
            advice="Load and store 16 bytes a lane (float4, or 8 halves) where shape and alignment allow it.",
        )
    if row["bandwidth_efficiency"] < AT_ROOFLINE and 0 < kernel.occupancy < min(FEW_WAVES, most):
        yield ProgramBottleneck(
            name="occupancy",
            what=f"{kernel.name} runs {kernel.occupancy} of {most} waves a SIMD ({kernel.vgpr} VGPRs, "
            f"{kernel.lds_bytes} bytes of LDS); {busy}.",
            advice="Use fewer registers or less LDS for each block.",
        )
    if row["bandwidth_efficiency"] < AT_ROOFLINE:
        yield ProgramBottleneck(
            name="parallelism",
            what=f"{kernel.name} keeps too few bytes in flight ({row['resident_waves_per_cu']} waves a CU); {busy}.",
            advice="Give the grid more blocks, or each thread several independent loads.",
        )
    yield ProgramBottleneck(
        name="bandwidth",
        what=f"{kernel.name} is at the memory roofline of {target}; {row['bytes']:.3g} bytes must move.",
        advice="Only moving fewer bytes helps: fuse neighbours, or keep intermediates out of memory.",
    )


_MIX = {
    "trans": "Take transcendental functions out of inner loops, or use fewer of them.",
    "lds": "Reduce within a wave by shuffles first, pad against bank conflicts, or keep tiles in registers.",
    "barrier": "Synchronise less often: finish the reduction of a wave by shuffles.",
    "salu": "Hoist index arithmetic out of the loop.",
    "branch": "Unroll, or move the tail's guard out of the main loop.",
    "valu": "Do less arithmetic for each element; use matrix instructions or the library for products.",
    "vmem_load": "Load more bytes with each instruction.",
    "vmem_store": "Store more bytes with each instruction.",
}


def _compute(target: str, row: Mapping[str, Any], kernel: KernelResources) -> ProgramBottleneck:
    """The class of instructions that takes most issue cycles."""
    cycles = {kind: ISSUE_CYCLES.get(kind, 1) * count for kind, count in sorted(kernel.instructions.items())}
    heaviest = max(sorted(cycles), key=lambda kind: cycles[kind], default="")
    share = cycles[heaviest] / sum(cycles.values()) if heaviest else 0.0
    clear = share >= MIX_SHARE and heaviest in _MIX
    return ProgramBottleneck(
        name=f"issue_{heaviest}" if clear else "issue",
        what=f"{kernel.name} waits for instruction issue on {target} ({1e6 * row.get('issue_seconds', 0.0):.3g} us)"
        + (f"; {share:.0%} of the cycles are {heaviest}." if heaviest else "."),
        advice=_MIX[heaviest] if clear else "Do less work for each element.",
    )


def _timed(result: TargetResult) -> ProgramBottleneck | None:
    """The bottleneck by a timing alone: the library, or the side of the roofline."""
    timing = result.timing
    if timing is None:
        return None
    if timing.own_time is not None and timing.own_time < 1.0 - MIX_SHARE:
        return ProgramBottleneck(
            name="library",
            what=f"only {timing.own_time:.0%} of the device time is in the program's own kernels.",
            advice="Write the heaviest library call as a kernel, or fuse its neighbours.",
        )
    if timing.roofline_fraction is not None and timing.roofline_fraction >= AT_ROOFLINE:
        return ProgramBottleneck(
            name="bandwidth" if timing.bound == "memory" else "compute_peak",
            what=f"{timing.roofline_fraction:.0%} of the measured roofline is reached.",
            advice="Only less work helps.",
        )
    kernels = result.build.kernels if result.build else ()
    narrow = [one for one in kernels if 0 < one.widest_vmem_bytes < WIDE_BYTES]
    what = (
        "no roofline is known"
        if timing.roofline_fraction is None
        else f"{timing.roofline_fraction:.0%} of the roofline"
    )
    if timing.bound == "memory" and narrow:
        return ProgramBottleneck(
            name="narrow_access", what=f"{what}. {resources(narrow[0])}.", advice="Load 16 bytes a lane."
        )
    return ProgramBottleneck(name=timing.bound or "unknown", what=f"{timing.median_ms:.4g} ms a call, {what}.")


# ---------------------------------------------------------------- by a language model


def bottleneck_prompt(program: Program, evaluation: Evaluation, counted: Counted | None = None) -> str:
    """Returns the prompt that asks a model for one bottleneck. counted: the run's record of the program."""
    lines = "\n".join(f"- {line}" for line in counter_lines(counted))
    known = f"{figures(evaluation)}\n{lines}" if lines else figures(evaluation)
    return render("judge", program=program_block(program), figures=known)


def read_bottleneck(text: str) -> ProgramBottleneck | None:
    """The one bottleneck that an answer names; None when it names none or several."""
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        answer = json.loads(found.group()) if found else None
    except (ValueError, RecursionError):
        return None
    parts = [answer.get(key) for key in ("name", "what", "advice")] if isinstance(answer, dict) else []
    if not parts or not all(isinstance(part, str) and part.strip() for part in parts):
        return None
    name, what, advice = (clean(str(part), 300) for part in parts)
    return ProgramBottleneck(name=re.sub(r"\W+", "_", name)[:40], what=what, advice=advice)
