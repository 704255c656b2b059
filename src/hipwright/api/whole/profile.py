"""Where a model's time goes: its regions by what the model can gain, and what stays. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hipwright.api.whole.handle import Clock, ModelHandle
from hipwright.api.whole.plan import Call, CallCut, Region, Stays, at_most, cut, ranked, total_of, without_scales
from hipwright.events import Listener, silent

_ROUNDS = 12
"""How deep refused parts are followed into their own parts."""


@dataclass(frozen=True)
class ModelProfile:
    """The regions of one forward. seconds: of all of it; regions: the one that can gain most first; told: of the model
    (`ModelHost.describe`); operators: of the whole forward; calls: all of its; refused: signatures of calls that are
    taken in parts because no program of them is known, and why."""

    clock: Clock
    told: dict[str, Any]
    seconds: float
    operators: int
    regions: tuple[Region, ...]
    stays: tuple[Stays, ...]
    calls: tuple[Call, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

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


def profile_model(
    handle: ModelHandle, clock: Clock, *, timed: Callable[[], object] | None = None, listener: Listener = silent
) -> ModelProfile:
    """Profiles one forward, and traces its regions. timed: called when nothing more is timed. Events for the listener:
    "stage" {text}."""
    listener("stage", {"text": f"profiling {handle.told['class']} ({clock.label}: {clock.where})"})
    calls = handle.profile(clock)
    if timed is not None:
        timed()
    regions, found = _regions(handle, calls, {}, (), listener)
    total = total_of(calls)
    return ModelProfile(
        clock=clock,
        told=handle.told,
        seconds=total,
        operators=sum(call.operators for call in calls if call.parent < 0),
        regions=tuple(ranked(regions, total)),
        stays=_longest_first(found),
        calls=tuple(calls),
    )


def in_parts(
    handle: ModelHandle, profile: ModelProfile, failed: Mapping[Region, str], *, listener: Listener = silent
) -> ModelProfile:
    """The profile with regions (why, by region) taken in parts, where they have any that can be regions.

    Regions that are not taken apart are the same objects; without new ones, the profile is.
    """
    refused = dict(profile.refused)
    for region, why in failed.items():
        more = refused | {call.signature: f"taken in parts: {why}" for call in region.calls}
        old = {call.number for one in profile.regions for call in one.calls}
        if any(call.number not in old for same in cut(profile.calls, more).candidates.values() for call in same):
            refused = more
    if refused == profile.refused:
        return profile
    regions, found = _regions(handle, profile.calls, refused, profile.regions, listener)
    known = {one.calls: one for one in profile.regions}
    kept = [known.get(one.calls, one) for one in regions]
    return replace(profile, regions=tuple(ranked(kept, profile.seconds)), stays=_longest_first(found), refused=refused)


def _longest_first(found: CallCut) -> tuple[Stays, ...]:
    return tuple(sorted(found.stays, key=lambda one: -one.seconds))


def _regions(
    handle: ModelHandle, calls: Sequence[Call], given: Mapping[str, str], known: Sequence[Region], listener: Listener
) -> tuple[list[Region], CallCut]:
    """Equal tasks once, and the cut. Calls that cannot be tasks are taken in parts, and these traced in turn.

    given: calls that are taken in parts anyhow; known: regions whose calls need no tracing.
    """
    traced: dict[int, dict[str, str]] = {call.number: {"text": one.text} for one in known for call in one.calls}
    refused = dict(given)
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
