"""Where a model's time goes: its regions by what the model can gain, and what stays. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hipwright.api.whole.handle import Clock, ModelHandle
from hipwright.api.whole.plan import Call, CallCut, Region, Stays, at_most, cut, ranked, total_of, without_scales
from hipwright.events import Listener, silent

_ROUNDS = 12
"""How deep refused parts are followed into their own parts."""


@dataclass(frozen=True)
class ModelProfile:
    """The regions of one forward. seconds: of all of it; regions: the one that can gain most first; told: of the model
    (`ModelHost.describe`); operators: of the whole forward."""

    clock: Clock
    told: dict[str, Any]
    seconds: float
    operators: int
    regions: tuple[Region, ...]
    stays: tuple[Stays, ...]

    def share(self, seconds: float) -> float:
        """A share of the forward's time."""
        return seconds / self.seconds if self.seconds else 0.0

    def at_most(self, region: Region) -> float:
        """By Amdahl's law, how many times faster the model can become by this region alone."""
        return at_most(region, self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the object of `hipwright model --only-profile --json`."""
        return {
            "class": self.told["class"],
            "parameters": self.told["parameters"],
            "inputs": self.told["inputs"],
            "times": self.clock.times,
            "where": self.clock.where,
            "microseconds": self.seconds * 1e6,
            "operators": self.operators,
            "regions": [self._region(region) for region in self.regions],
            "stays": [
                {"path": one.path, "class": one.kind, "share": self.share(one.seconds), "why": one.why}
                for one in self.stays
            ],
        }

    def _region(self, region: Region) -> dict[str, Any]:
        return {
            "class": region.calls[0].kind,
            "paths": list(region.paths),
            "calls": len(region.calls),
            "operators": region.calls[0].operators,
            "share": self.share(region.seconds),
            "microseconds": region.seconds * 1e6,
            "least_microseconds": region.least * 1e6 or None,
            "model_speedup_at_most": self.at_most(region),
        }


def profile_model(handle: ModelHandle, clock: Clock, *, listener: Listener = silent) -> ModelProfile:
    """Profiles one forward, and traces its regions. Events for the listener: "stage" {text}."""
    listener("stage", {"text": f"profiling {handle.told['class']} ({clock.label}: {clock.where})"})
    calls = handle.profile(clock)
    regions, found = _regions(handle, calls, listener)
    total = total_of(calls)
    return ModelProfile(
        clock=clock,
        told=handle.told,
        seconds=total,
        operators=sum(call.operators for call in calls if call.parent < 0),
        regions=tuple(ranked(regions, total)),
        stays=tuple(sorted(found.stays, key=lambda one: -one.seconds)),
    )


def _regions(handle: ModelHandle, calls: Sequence[Call], listener: Listener) -> tuple[list[Region], CallCut]:
    """Equal tasks once, and the cut. Calls that cannot be tasks are taken in parts, and these traced in turn."""
    traced: dict[int, dict[str, str]] = {}
    refused: dict[str, str] = {}
    for _ in range(_ROUNDS):
        found = cut(calls, refused)
        new = [call for same in found.candidates.values() for call in same if call.number not in traced]
        if not new:
            break
        listener("stage", {"text": f"tracing {len(new)} calls as tasks"})
        traced |= handle.tasks([call.number for call in new])
        for call in new:
            if why := traced.get(call.number, {"why": "another forward made other calls"}).get("why"):
                refused.setdefault(call.signature, why)
    found = cut(calls, refused)
    equal: dict[str, list[Call]] = {}
    for same in found.candidates.values():
        for call in same:
            equal.setdefault(without_scales(traced[call.number]["text"]), []).append(call)
    return [Region(traced[same[0].number]["text"], tuple(same)) for same in equal.values()], found
