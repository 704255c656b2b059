"""Reports hazards of a program: common mistakes on AMD GPUs, each with its line and a fix.

Hazards are found in the text, before anything is compiled, and worded so that the author (a person or a model) can act
on them. They are no verdicts: an "error" is wrong on one of the targets as far as the text shows, a "warning" may be.
Comments and strings are blanked first. docs/answers.md lists the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from hipwright.errors import ProgramError
from hipwright.program.hazards.flow import barriers, tails
from hipwright.program.hazards.plan import launch_bounds, lds, reinitialised
from hipwright.program.hazards.source import BlankedSource, HazardMatch, HazardName
from hipwright.program.hazards.tokens import cuda_only, doubles, masks, waves
from hipwright.program.parse import parse
from hipwright.records import Record
from hipwright.targets import OFFLINE, Architecture

Severity = Literal["error", "warning"]


class Hazard(Record, frozen=True, kw_only=True):
    """One finding. line: of the program's text, from 1. message and fix: one line each."""

    name: HazardName
    line: int
    message: str
    fix: str
    severity: Severity = "warning"


FIXES: dict[HazardName, str] = {
    "wave_size": "start at warpSize / 2, count lanes with threadIdx.x % warpSize and waves with / warpSize, and keep "
    "__ballot in unsigned long long (__popcll, __ffsll)",
    "sync_mask": "write the form without a mask: __shfl_xor(v, offset), __ballot(p), __syncwarp()",
    "cuda_only": "write it with plain HIP: loads and stores, __syncthreads(), __shfl_xor, __shared__ memory",
    "lds_limit": "use a smaller tile, or fewer buffers at a time",
    "missing_tail_guard": "guard the store: if (i < n) out[i] = ...",
    "parameter_reinit": "read the reference's own tensor by its path, e.g. self.conv.weight",
    "barrier_in_branch": "take __syncthreads() out of the branch: every thread of the block must reach it; "
    "guard only the work "
    "before and after it",
    "launch_bounds": "write __launch_bounds__(N) with the N that the plan launches",
    "double_literals": "write the literal with an f: 0.5f, 1e-5f",
}
"""What to do about each hazard."""


def hazards(program_text: str, targets: Sequence[str] = ()) -> list[Hazard]:
    """Finds the hazards of a program on some targets, in the order of lines. Never raises.

    targets: names of `hipwright.targets.OFFLINE` (others, such as "cpu" and "cuda", have no limits here); none means
    all AMD targets. A text that does not parse has none: the parser reports its errors.
    """
    try:
        source = BlankedSource.of(parse(program_text))
    except ProgramError:
        return []
    known = [OFFLINE[name] for name in targets if name in OFFLINE] if targets else list(OFFLINE.values())
    reported = {_hazard(found, source) for found in _all(source, known)}
    worst: dict[tuple[str, int], Hazard] = {}
    for hazard in sorted(reported, key=lambda h: (h.severity, h.message)):
        worst.setdefault((hazard.name, hazard.line), hazard)  # "error" sorts first
    return sorted(worst.values(), key=lambda h: (h.line, h.severity, h.name))


def _all(source: BlankedSource, known: Sequence[Architecture]) -> Iterator[HazardMatch]:
    yield from waves(source, {target.wave for target in known})
    for rule in (masks, cuda_only, doubles, barriers, tails, launch_bounds, reinitialised):
        yield from rule(source)
    yield from lds(source, known)


def _hazard(found: HazardMatch, source: BlankedSource) -> Hazard:
    line = source.line(found.at) if found.line is None else found.line
    fix = FIXES[found.name]
    return Hazard(
        name=found.name, line=line, message=found.message, fix=fix, severity="error" if found.error else "warning"
    )
