"""What became of a model's regions and of the model: the object of `hipwright model --json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hipwright.api.result import Result
from hipwright.api.whole.plan import Region
from hipwright.api.whole.profile import ModelProfile

ESTIMATED, MEASURED = "ESTIMATE", "measured"


@dataclass
class RegionOutcome:
    """A region and its program. kept: whether the model has it; why: it has it not.

    factor: how many times faster than eager, by `basis`: "measured", "ESTIMATE", or "" where no speed is known. result:
    of its search, which took `seconds`; calls: of its program in one forward; fallbacks: further calls that were the
    part's own, by reason.
    """

    number: int
    region: Region
    budget: int = 0
    kept: bool = False
    why: str = ""
    factor: float | None = None
    basis: str = ""
    result: Result | None = None
    seconds: float = 0.0
    calls: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)

    def drop(self, why: str) -> None:
        """Takes the region out."""
        self.kept, self.why = False, why

    @property
    def unanswered(self) -> bool:
        """Whether its search ended without a verified program."""
        return not self.kept and bool(self.why) and (self.result is None or not self.result.passed)

    @property
    def folder(self) -> str:
        """The name of its folder; of the class's name, which the model's code chooses, only letters and digits."""
        return f"{self.number:02d}_{re.sub(r'[^A-Za-z0-9]+', '_', self.region.calls[0].kind)[:40]}"


@dataclass
class ModelOutcome:
    """The regions that were searched, and the model with those that are kept.

    gate: {"passed", "truth": "float64" or "eager", "inputs": sets, "error", "eager_error", "limit"}: the worst output.
    metric: {"eager", "programs", "passed"}, None without one. times: measured milliseconds a call of "eager", "compile"
    and "programs" with "speedup" over the first two; {} without a GPU. notes: what was not measured, a sentence each.
    seconds: of each stage of the work, by name, one after another.
    """

    profile: ModelProfile
    regions: list[RegionOutcome]
    gate: dict[str, Any] = field(default_factory=dict)
    metric: dict[str, Any] | None = None
    times: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def kept(self) -> list[RegionOutcome]:
        """The regions whose programs the model has."""
        return [one for one in self.regions if one.kept]

    @property
    def passed(self) -> bool:
        """Whether the model has a program and keeps its accuracy."""
        return bool(self.kept and self.gate.get("passed") and (self.metric is None or self.metric["passed"]))

    @property
    def after(self) -> float:
        """Seconds of the forward with the kept regions, by their factors (Amdahl's law)."""
        saved = sum(one.region.seconds * (1 - 1 / one.factor) for one in self.kept if one.factor)
        return self.profile.seconds - saved

    @property
    def speedup(self) -> float | None:
        """By Amdahl's law from the regions' own speedups; None where no region's is known."""
        return self.profile.seconds / self.after if any(one.factor for one in self.kept) else None

    def shares(self, one: RegionOutcome) -> tuple[float, float]:
        """A region's share of the time before and after."""
        spent = one.region.seconds / (one.factor if one.kept and one.factor else 1.0)
        return self.profile.share(one.region.seconds), spent / self.after if self.after else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = self.profile.to_dict()
        return {
            **plain,
            "status": "pass" if self.passed else "unchanged",
            "regions": [
                {**fields, **self._region(one)} for fields, one in zip(plain["regions"], self._all(), strict=True)
            ],
            "in_parts": [
                {"paths": list(one.region.paths), "why": one.why, "run": one.result.run if one.result else None}
                for one in self.regions
                if one.region not in self.profile.regions
            ],
            "speedup_by_regions": self.speedup,
            "speedup_basis": next((one.basis for one in self.kept if one.basis), ""),
            "measured": self.times or None,
            "gate": self.gate or None,
            "metric": self.metric,
            "not_measured": self.notes,
            "seconds": {name: round(spent, 3) for name, spent in self.seconds.items()},
        }

    def _all(self) -> list[RegionOutcome | None]:
        """The outcomes by the profile's order of regions, None for those that were not searched."""
        found: Mapping[int, RegionOutcome] = {id(one.region): one for one in self.regions}
        return [found.get(id(region)) for region in self.profile.regions]

    def _region(self, one: RegionOutcome | None) -> dict[str, Any]:
        if one is None:
            return {"replaced": False, "why": "not among the regions that were searched"}
        result = one.result
        return {
            "replaced": one.kept,
            "why": one.why,
            "share_after": self.shares(one)[1],
            "speedup": one.factor,
            "speedup_basis": one.basis,
            "run": result.run if result is not None else None,
            "evaluations": result.evaluations if result is not None else 0,
            "seconds": round(one.seconds, 3),
            "program_key": result.program_key if result is not None else None,
            "program_calls": one.calls,
            "fallbacks": one.fallbacks,
        }
