"""The rows of a data set: a task, a program, and the evaluation of the program (docs/dataset.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hipwright.records import Evaluation, KernelResources, Program, Record, Timing, content_key
from hipwright.targets import TARGETS

Kind = Literal["engine", "variant", "repair", "step", "negative"]
"""engine: a program of the engine; variant: another of its schedules; repair, step: `before` is the wrong or slower
program; negative: a wrong program with `evidence`."""

STEP_GAIN = 0.05
"""The least share of the time that a step saves."""

KINDS: tuple[Kind, ...] = ("engine", "variant", "repair", "step", "negative")


class BuildSummary(Record, frozen=True, kw_only=True):
    """One program compiled for one target: the largest resource use of a kernel, the lowest occupancy (waves a SIMD).

    All figures are 0 for a program without kernels.
    """

    ok: bool
    kernels: int = 0
    vgpr: int = 0
    agpr: int = 0
    sgpr: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    spills: int = 0
    occupancy: int = 0


class Pair(Record, frozen=True, kw_only=True):
    """One row. task: the key of the Task record; correct: the program passed the full verification.

    status: of the evaluation; evidence: the verifier's findings as text, of a negative or of the program that a repair
    replaces; before: the program that this one repairs or improves; builds, estimate_us: by AMD target (static
    estimates, not measured times); timing: where one was measured; split: "" before splits are assigned; provenance:
    the author of the program, its verification, the origin of the task, and versions.
    """

    task: str
    task_name: str
    task_source: str
    program: Program
    kind: Kind
    correct: bool
    status: str
    evidence: str = ""
    before: Program | None = None
    coverage: float = 0.0
    builds: dict[str, BuildSummary] = msgspec.field(default_factory=dict)
    estimate_us: dict[str, float] = msgspec.field(default_factory=dict)
    timing: Timing | None = None
    operators: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    dtype: str = ""
    composition: str = ""
    difficulty: str = ""
    split: str = ""
    provenance: dict[str, Any] = msgspec.field(default_factory=dict)
    licence: str = "Apache-2.0"

    @property
    def key(self) -> str:
        """20 hex digits of the task, the program, the kind and the predecessor; independent of the evaluation."""
        return content_key("Pair", self.task, self.program.key, self.kind, self.before.key if self.before else "")


def build_summaries(evaluation: Evaluation) -> dict[str, BuildSummary]:
    """{AMD target: summary of the program's build}; {} if nothing was built."""
    found = {name: result.build for name, result in evaluation.targets.items() if not TARGETS.is_host(name)}
    return {name: _build_summary(build.ok, build.kernels) for name, build in found.items() if build is not None}


def _build_summary(ok: bool, kernels: tuple[KernelResources, ...]) -> BuildSummary:
    largest = {
        name: max((getattr(kernel, name) for kernel in kernels), default=0)
        for name in ("vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", "spills")
    }
    occupancy = min((kernel.occupancy for kernel in kernels), default=0)
    return BuildSummary(ok=ok, kernels=len(kernels), occupancy=occupancy, **largest)


def estimates_us(evaluation: Evaluation) -> dict[str, float]:
    """{AMD target: estimated microseconds}; {} without estimates."""
    found = {name: result.estimate for name, result in evaluation.targets.items() if not TARGETS.runs(name)}
    return {name: one.microseconds for name, one in found.items() if one is not None}


def measured_timing(evaluation: Evaluation) -> Timing | None:
    """The measured timing of a program; None without one."""
    return next((result.timing for result in evaluation.targets.values() if result.timing is not None), None)
