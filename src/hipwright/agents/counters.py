"""What limits a program, for the search: by a profile where one is to be had, else by the judge's static rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from hipwright.agents import judge
from hipwright.archive import Counted
from hipwright.archive.log import STATIC
from hipwright.errors import HipwrightError
from hipwright.measure.profiling.limit import call_limit
from hipwright.measure.profiling.profiler import ProfileReport
from hipwright.records import Evaluation, Program
from hipwright.search.moves import MOVES

PRICE = 1
"""Evaluations that a profile costs: the process starts, warms up and is replayed, as an evaluation's is."""

STATIC_LIMITS: Mapping[str, str] = {
    "narrow_access": "memory",
    "bandwidth": "memory",
    "rereads": "memory",
    "memory": "memory",
    "occupancy": "occupancy",
    "spills": "occupancy",
    "parallelism": "tail",
    "latency": "latency",
    "compute": "issue",
    "compute_peak": "issue",
    "issue_lds": "lds",
    "issue_barrier": "lds",
    "issue_vmem_load": "memory",
    "issue_vmem_store": "memory",
}
"""The limit that each of the judge's static findings means; other kinds of issue are "issue", the rest none."""


@dataclass
class RunCounters:
    """`search.counters.CountersLike`. source: of the profiles, "static" for none; profiled: makes one.

    recorded: records of the run that is repeated, by program key, which are used instead of new profiles.
    """

    source: str
    profiled: Callable[[Program], ProfileReport] | None = None
    recorded: Mapping[str, Counted] = field(default_factory=dict)

    @property
    def price(self) -> int:
        """Evaluations that a profile costs."""
        return 0 if self.source == STATIC else PRICE

    def profile(self, program: Program, evaluation: Evaluation) -> Counted:
        """A profile's record; where the profiler fails, the static one with the reason."""
        if (known := self.recorded.get(program.key)) is not None:
            return known
        assert self.profiled is not None, "a source of profiles has a profiler"
        started = time.monotonic()
        try:
            report = self.profiled(program)
        except HipwrightError as error:
            seconds = round(time.monotonic() - started, 3)
            return replace(self.static(evaluation), error=f"{error.message}"[:300], seconds=seconds, cost=PRICE)
        return counted_of(report, self.source, round(time.monotonic() - started, 3))

    def static(self, evaluation: Evaluation) -> Counted:
        """The judge's static finding, which costs nothing."""
        found = judge.bottleneck(evaluation)
        if found is None:
            return Counted(program=evaluation.program, round=0, source=STATIC)
        limit = STATIC_LIMITS.get(found.name, "issue" if found.name.startswith("issue") else "")
        made = Counted(program=evaluation.program, round=0, source=STATIC, limit=limit)
        return replace(made, kernel=found.kernel, text=found.what, advice=found.advice)


def counted_of(report: ProfileReport, source: str, seconds: float) -> Counted:
    """The record of one profiled call, with the price of a profile."""
    found = call_limit([one for one in report.profiles if one.own])
    made = Counted(program="", round=0, source=source, seconds=seconds, cost=PRICE)
    if found is None:
        return replace(made, text="the call launches no kernel of its own")
    advice = "; ".join(f"{move.name}: {move.what}" for move in MOVES.get(found.name, ()))
    basis = next((one.basis for one in report.profiles if one.basis != "counters"), "")
    text = f"{found.kernel} ({found.share:.0%} of the device time): {found.text}{f' [{basis}]' if basis else ''}"
    return replace(made, limit=found.name, kernel=found.kernel, text=text, advice=advice, figures=dict(found.figures))
