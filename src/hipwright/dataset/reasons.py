"""Reasons for a verified program, from what is recorded of it: plan, bottleneck, change, effect.

The engine wrote the program or its change, so that nothing is guessed: schedules come from its choices, the bottleneck
from the task's counted bytes and operations, a repair from the mutation that it takes back, an effect from the
verifier's and the estimate's figures. A part that is not recorded is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from hipwright.dataset.records import STEP_GAIN, Pair
from hipwright.measure.cost import base_name
from hipwright.records import Record

WORDS = {"easy": 40, "medium": 60, "hard": 90}
"""The most words of a task's reasons, by its difficulty."""
DEFAULT_WORDS = 60

MAPPINGS = {
    "scalar": "one element a thread",
    "vector": "a vector of neighbouring elements a thread",
    "lanes": "a few lanes of a wave a row, without LDS",
    "block": "a block a row",
    "columns": "neighbouring columns side by side, rows below one another",
}
"""What a choice `map:KERNEL` means."""

_MUTATION = re.compile(r"\w+:(?P<line>\d+): (?P<kind>[^:]+): `(?P<right>.+)` -> `(?P<wrong>.*)`", re.DOTALL)


class Reasons(Record, frozen=True, kw_only=True):
    """The reasons of one row, each a sentence or ""."""

    plan: str = ""
    bottleneck: str = ""
    change: str = ""
    effect: str = ""

    @property
    def text(self) -> str:
        """The sentences in order."""
        return " ".join(part for part in (self.bottleneck, self.plan, self.change, self.effect) if part)

    @property
    def words(self) -> int:
        """The words of `text`."""
        return len(self.text.split())


class TooLittle(Exception):
    """A row of which too little is known, or whose reasons are not worth their words. The message says which."""


def reasons_of(pair: Pair) -> Reasons:
    """The reasons of a verified row, by the curation rule. Raises TooLittle for rows that it leaves out.

    The rule: an easy task's translation needs no reasons; a translation needs its plan, a repair its change, a step
    its change and a gain of at least STEP_GAIN. Reasons that are too long for the task's difficulty (WORDS) lose the
    plan first, then the bottleneck; what is still too long is left out.
    """
    made = _made(pair)
    if pair.kind == "step":
        found = _step(pair, made)
    elif pair.kind == "repair":
        found = _repair(pair, made)
    else:
        if pair.difficulty == "easy":
            raise TooLittle("an easy task's translation needs no reasons")
        found = Reasons(plan=_plan(pair, made), bottleneck=_bottleneck(pair), effect=_verified(pair))
        if not found.plan:
            raise TooLittle("its plan is not recorded")
    return _shortened(found, WORDS.get(pair.difficulty, DEFAULT_WORDS))


def _shortened(found: Reasons, most: int) -> Reasons:
    parts = ("plan", "bottleneck") if found.change else ("bottleneck", "effect")
    for part in parts:
        if found.words > most:
            found = replace(found, **{part: ""})
    if found.words > most:
        raise TooLittle(f"its reasons have more than {most} words")
    return found


def _made(pair: Pair) -> Mapping[str, Any]:
    made = pair.provenance.get("made")
    return made if isinstance(made, dict) else {}


# ---------------------------------------------------------------- kinds of rows


def _step(pair: Pair, made: Mapping[str, Any]) -> Reasons:
    gain = made.get("gain")
    if pair.before is None or not isinstance(gain, (int, float)) or gain < STEP_GAIN:
        raise TooLittle("a step without a recorded gain")
    change = "; ".join(_changes(made.get("before"), made.get("choices"))) or "; ".join(
        _changes(pair.before.knobs, pair.program.knobs)
    )
    if not change:
        raise TooLittle("what the step changes is not recorded")
    by = "static estimate falls" if made.get("gain_by") == "estimate" else "measured time falls"
    return Reasons(
        bottleneck=_bottleneck(pair),
        change=f"I change {change}.",
        effect=f"The {by} by {gain:.0%}.",
    )


def _repair(pair: Pair, made: Mapping[str, Any]) -> Reasons:
    found = _MUTATION.fullmatch(str(made.get("mutation", "")))
    if found is None:
        raise TooLittle("what the repair changes is not recorded")
    right, wrong = (" ".join(found[name].split()) for name in ("right", "wrong"))
    change = f"Line {found['line']} has a fault ({found['kind']}): `{wrong}` must be `{right}`."
    if wrong in ("", ";"):
        change = f"Line {found['line']} lacks `{right}`."
    return Reasons(bottleneck=_finding(pair.evidence), change=change, effect=_verified(pair))


# ---------------------------------------------------------------- sentences


def _bottleneck(pair: Pair) -> str:
    """What bounds the task by its counted bytes and operations."""
    task = pair.provenance.get("task")
    bound = task.get("bound") if isinstance(task, dict) else None
    if bound == "memory":
        return "The task is bound by memory traffic, so each tensor should be read and written once."
    return "The task is bound by arithmetic, so the matrix units should be kept busy." if bound == "compute" else ""


def _plan(pair: Pair, made: Mapping[str, Any]) -> str:
    """The kernels, what they fuse, and how threads are mapped."""
    kernels = next((one.kernels for one in pair.builds.values() if one.ok), 0)
    if not kernels:
        return ""
    names = list(dict.fromkeys(base_name(name) for name in pair.operators))
    what = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1] if names else "the task"
    count = "one kernel" if kernels == 1 else f"{kernels} kernels"
    alone = pair.coverage > 0.995
    with_library = "" if alone else f" and library calls ({1 - pair.coverage:.0%} of the work)"
    choices = made.get("choices")
    maps = [
        f"`{name.removeprefix('map:')}` has {MAPPINGS[value]}"
        for name, value in (choices.items() if isinstance(choices, dict) else ())
        if name.startswith("map:") and value in MAPPINGS
    ]
    how = ": " + "; ".join(maps) if maps else ""
    verb = "computes" if alone and kernels == 1 else "compute"
    return f"{count[0].upper()}{count[1:]}{with_library} {verb} {what}{how}."


def _changes(before: Any, after: Any) -> Iterator[str]:
    """Each choice that differs, with both values."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        if name.startswith("map:"):
            kernel = name.removeprefix("map:")
            yield f"`{kernel}` from {MAPPINGS.get(str(old), old)} to {MAPPINGS.get(str(new), new)}"
        elif name == "fuse":
            yield "one kernel for each operator to fused kernels" if new else "fused kernels to one for each operator"
        elif old is None or new is None:
            yield f"{name} to {new}" if old is None else f"{name}, which falls away"
        else:
            yield f"{name} from {old} to {new}"


def _finding(evidence: str) -> str:
    """The verifier's first finding."""
    lines = [line.removeprefix("- ").strip() for line in evidence.splitlines() if line.startswith("- ")]
    finding = next((line for line in lines if not line.startswith("verdict:")), "")
    return f"The verifier says: {finding.rstrip('.')}." if finding else ""


def _verified(pair: Pair) -> str:
    """On how many shapes and kinds of inputs the program was verified."""
    verified = pair.provenance.get("verified")
    known = [one for one in verified.values() if isinstance(one, dict)] if isinstance(verified, dict) else []
    shapes = max((len(one.get("workloads") or ()) for one in known), default=0)
    kinds = max((len(one.get("families") or ()) for one in known), default=0)
    plural = "" if shapes == 1 else "s"
    return f"It is right on {shapes} shape{plural} with {kinds} kinds of inputs." if shapes and kinds else ""
