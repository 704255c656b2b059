"""Which parts of a model are worth a program: a cut through its calls, equal ones once, ranked by Amdahl's law.

Amdahl (1967), "Validity of the single processor approach to achieving large scale computing capabilities": a part with
share p of the time that becomes s times faster makes the whole 1 / (1 - p + p / s) times faster.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MOST_OPERATORS = 64
"""Operators above which a call is taken in parts: a search for one program of so many has too much to vary."""
WHOLE = "model"
"""Among counts of calls by region, the key of the model's own."""
LEAST_SHARE = 0.01
"""Share of a model's time below which a region stays as it is."""
_SCALE = re.compile(r"(torch\.randn?\([\d, ()]*\)) \* [\d.e+-]+")
_LEAST = re.compile(r"torch\.randint\((\d+), (\d+)")
_BLOCK = 3
"""Operators from which on equal calls are blocks of the model, and what holds them is taken in parts."""


@dataclass(frozen=True)
class Call:
    """One call of a part in a forward. path: "" for the model. parent: the number of the call around it, or -1.

    seconds: with its parts; least: of one kernel at the roofline, 0 where that is not known. operators: that move or
    compute something. signature: equal for calls that look equal from outside.
    """

    number: int
    path: str
    kind: str
    parent: int
    seconds: float
    least: float
    operators: int
    signature: str


@dataclass(frozen=True)
class Region:
    """Calls that are one task. text: the task's; calls: in the forward's order. None of them lies in another."""

    text: str
    calls: tuple[Call, ...]

    @property
    def seconds(self) -> float:
        """Of all calls in one forward."""
        return sum(call.seconds for call in self.calls)

    @property
    def least(self) -> float:
        """Of all calls at the roofline."""
        return sum(call.least for call in self.calls)

    @property
    def paths(self) -> tuple[str, ...]:
        """The parts that are called, each once."""
        return tuple(dict.fromkeys(call.path for call in self.calls))


@dataclass(frozen=True)
class Stays:
    """Time that no region covers: a part, or the operators of its own forward, and why they stay."""

    path: str
    kind: str
    seconds: float
    why: str


@dataclass
class CallCut:
    """Calls that may be regions, by signature, none within another; what stays; calls too small, by path."""

    candidates: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    stays: list[Stays] = field(default_factory=list)


def cut(calls: Sequence[Call], refused: Mapping[str, str]) -> CallCut:
    """The largest calls that can be tasks, from the model downwards.

    A call is taken in parts where it has more than MOST_OPERATORS operators, holds equal blocks, or cannot be a task
    (refused: why, by signature); its own operators stay then. Groups of calls below LEAST_SHARE stay too.
    """
    parts: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        parts[call.parent].append(call)
    found, blocks = CallCut(), _blocks(calls)
    waiting = list(reversed(parts[-1]))
    while waiting:
        call = waiting.pop()
        why = refused.get(call.signature) or _too_large(call, calls, parts, blocks)
        if not why:
            found.candidates[call.signature].append(call)
            continue
        own = call.seconds - sum(part.seconds for part in parts[call.number])
        if own > 0.0 and call.operators:
            found.stays.append(Stays(call.path, call.kind, own, why))
        waiting += reversed(parts[call.number])
    _drop_small(found, total_of(calls))
    return found


def total_of(calls: Sequence[Call]) -> float:
    """Seconds of the forward."""
    return sum(call.seconds for call in calls if call.parent < 0)


def _blocks(calls: Sequence[Call]) -> set[str]:
    """Signatures of blocks that repeat."""
    counts = Counter(call.signature for call in calls if call.operators >= _BLOCK)
    return {signature for signature, count in counts.items() if count > 1}


def _too_large(call: Call, calls: Sequence[Call], parts: Mapping[int, Sequence[Call]], blocks: set[str]) -> str:
    """Why a call is taken in parts, "" where it is not."""
    if call.operators > MOST_OPERATORS:
        return f"taken in parts: {call.operators} operators"
    if call.signature in blocks:
        return ""
    within = list(parts.get(call.number, ()))
    while within:
        part = within.pop()
        if part.signature in blocks:
            return f"taken in parts: it holds equal blocks, such as {part.path}"
        within += parts.get(part.number, ())
    return ""


def _drop_small(found: CallCut, total: float) -> None:
    for signature, calls in list(found.candidates.items()):
        seconds = sum(call.seconds for call in calls)
        if seconds < LEAST_SHARE * total or not any(call.operators for call in calls):
            del found.candidates[signature]
            if seconds > 0.0:
                first = calls[0]
                found.stays.append(Stays(first.path, first.kind, seconds, f"below {LEAST_SHARE:.0%} of the time"))


# ---------------------------------------------------------------- Amdahl's law


def speedup(share: float, factor: float) -> float:
    """How many times faster the whole is where a share of its time becomes `factor` times faster.

    >>> speedup(0.5, 2.0)
    1.3333333333333333
    """
    return 1.0 / (1.0 - share + share / factor)


def at_most(region: Region, total: float) -> float:
    """How many times faster the model can become by a region: where that takes its least time."""
    return total / max(total - (region.seconds - region.least), 1e-12 * total)


def ranked(regions: Sequence[Region], total: float) -> list[Region]:
    """By what the model can gain, the most first; equal ones by their place in the forward."""
    return sorted(regions, key=lambda region: (-at_most(region, total), region.calls[0].number))


def budgets(regions: Sequence[Region], budget: int, least: int = 2) -> list[int]:
    """Evaluations of each region's search: in proportion to what it can gain, and `least` for each while they last."""
    found, left = [], budget
    weights = [max(region.seconds - region.least, 0.0) for region in regions]
    for place, weight in enumerate(weights):
        rest = sum(weights[place:])
        fair = round(left * weight / rest) if rest > 0 else left // (len(weights) - place)
        given = min(left, max(least, min(fair, left - least * (len(weights) - place - 1))))
        found.append(given)
        left -= given
    return found


def without_scales(text: str) -> str:
    """A region's task without the scales of its inputs, in which equal blocks of a deep model differ, and without the
    least of whole numbers that are mostly much larger, in which tables of one size do. Signs stay.

    Verification draws inputs of several scales anyway, and each call's results are compared with the part's own.
    """

    def from_zero(found: re.Match[str]) -> str:
        least, most = map(int, found.groups())
        return f"torch.randint({0 if 2 * least <= most else least}, {most}"

    state, get_inputs, inputs = text.rpartition("\ndef get_inputs")
    return state + get_inputs + _LEAST.sub(from_zero, _SCALE.sub(r"\1", inputs))
