"""The rows of a data set: a task, a program, and what the evaluator found out about the two (docs/dataset.md)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from hipwright.records import Evaluation, KernelResources, Program, Record, Timing, content_key
from hipwright.targets import TARGETS

Kind = Literal["engine", "variant", "repair", "step", "negative"]
"""engine: its default program; variant: another of its schedules; repair and step: from a search, `before` is what was
mended or bettered; negative: judged wrong, `evidence` says how."""

STEP_GAIN = 0.05
"""Share of the time that a step must save to be worth learning from."""

KINDS: tuple[Kind, ...] = ("engine", "variant", "repair", "step", "negative")


class BuildSummary(Record, frozen=True, kw_only=True):
    """One program compiled for one target: the largest use over its kernels, and the lowest occupancy (waves a SIMD).

    A program that plans library calls alone has no kernels of its own: then all are 0.
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
    """One row. task: the key of the Task record; correct: it passed the full verification, and provenance says where.

    status: the evaluation's; evidence: what the verifier found, in words, of a negative, or of what a repair mends;
    before: the program that this one mends or betters; builds and estimate_us: by AMD target (estimates, never times);
    timing: only where one was measured; split: "" until the splits are made; provenance: what made the program, and by
    which version.
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
        """20 hex digits that name the pair: its task, program, kind and predecessor, not what was found of them."""
        return content_key("Pair", self.task, self.program.key, self.kind, self.before.key if self.before else "")


def built(evaluation: Evaluation) -> dict[str, BuildSummary]:
    """What each AMD target's compiler made of the program; {} if nothing was built."""
    found = {name: result.build for name, result in evaluation.targets.items() if not TARGETS.is_host(name)}
    return {name: _built(build.ok, build.kernels) for name, build in found.items() if build is not None}


def _built(ok: bool, kernels: tuple[KernelResources, ...]) -> BuildSummary:
    largest = {
        name: max((getattr(kernel, name) for kernel in kernels), default=0)
        for name in ("vgpr", "agpr", "sgpr", "lds_bytes", "scratch_bytes", "spills")
    }
    occupancy = min((kernel.occupancy for kernel in kernels), default=0)
    return BuildSummary(ok=ok, kernels=len(kernels), occupancy=occupancy, **largest)


def estimates(evaluation: Evaluation) -> dict[str, float]:
    """{AMD target: estimated microseconds} of a program that passed."""
    found = {name: result.estimate for name, result in evaluation.targets.items() if not TARGETS.runs(name)}
    return {name: one.microseconds for name, one in found.items() if one is not None}


def timing(evaluation: Evaluation) -> Timing | None:
    """The time that was measured, if one was."""
    return next((result.timing for result in evaluation.targets.values() if result.timing is not None), None)
