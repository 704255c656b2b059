"""Honest variants of verified programs, which must pass: knobs, the engine's choices, changes without an effect."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hipwright.audit.evolve.faults import Fault, Faults, in_bodies
from hipwright.audit.evolve.subject import Edit, Subject, apply
from hipwright.engine import write
from hipwright.engine.authoring import Authored
from hipwright.errors import HipwrightError

_KNOB = re.compile(r"(?m)^(?P<name>[A-Z]\w*) = knob\((?P<default>\w+), choices=\[(?P<choices>[^\]]+)\]\)")


def _wider_accumulators(subject: Subject) -> Iterator[Fault]:
    """Sums of floats in double."""
    for function, body in subject.bodies():
        names = {m.group(1) for m in re.finditer(r"(?<=[;{})\s])([A-Za-z_]\w*) \+= ", body)}
        for match in re.finditer(r"(?<=[;{(\s])(?P<type>float) (?P<name>\w+) = 0\.0f?;", body):
            name = match["name"]  # one that float functions round must not meet its rounded self again
            if name in names and not re.search(rf"__shfl\w*\({name}\b|&{name}\b|\w+f\([^;]*\b{name}\b", body):
                span = function.begin + match.start("type"), function.begin + match.end("type")
                yield Fault((Edit(*span, "double"),), "other", function)


def _volatile_lds(subject: Subject) -> Iterator[Fault]:
    """Arrays in LDS become volatile; every barrier stays."""
    for function, body in subject.bodies():
        for match in re.finditer(r"\b__shared__ (?=(?:float|int|double) \w+\[)", body):
            at = function.begin + match.end()
            yield Fault((Edit(at, at, "volatile "),), "other", function)


def _unused_workspace(subject: Subject) -> Iterator[Fault]:
    for launch in subject.launches:
        yield Fault((Edit(launch.start(), launch.start(), f"{launch['indent']}hw_spare = torch.empty((64,))\n"),))


KINDS: Mapping[str, Faults] = {
    "barrier twice": in_bodies(r"\b__syncthreads\(\);", "__syncthreads(); __syncthreads();"),
    "extra fence": in_bodies(r"\b__syncthreads\(\);", "__threadfence(); __syncthreads();"),
    "double accumulator": _wider_accumulators,
    "volatile LDS": _volatile_lds,
    "unused workspace": _unused_workspace,
}


def rewritten(subject: Subject, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text) of programs that mean the same, in a random order."""
    found = [(kind, fault) for kind, faults in KINDS.items() for fault in faults(subject)]
    rng.shuffle(found)
    for kind, fault in found:
        yield kind, apply(subject.text, fault.edits)


def other_knobs(subject: Subject, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text) of a hand-written program with another default for each of its knobs."""
    found = []
    for match in _KNOB.finditer(subject.text):
        for choice in match["choices"].split(","):
            if choice.strip() != match["default"] and match["name"] != "WAVE":  # which is the device's
                edit = Edit(*match.span("default"), choice.strip())
                found.append((f"knob {match['name']}", apply(subject.text, [edit])))
    rng.shuffle(found)
    yield from found


def engine_programs(graph: Any, authored: Authored, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text) of the engine's programs: its first, then one choice changed at a time, then random choices."""
    yield "engine", authored.program.text
    space = authored.space
    single = [{key: value} for key in sorted(space) for value in space[key].options if value != space[key].default]
    rng.shuffle(single)
    for choices in single:
        yield from _written(graph, choices, "one engine choice")
    while space:
        drawn = {key: rng.choice(list(space[key].options)) for key in sorted(space)}
        yield from _written(graph, drawn, "engine choices")


def _written(graph: Any, choices: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    try:
        program = write(graph, choices)
    except HipwrightError as error:
        yield f"{kind}: {error.message}", ""
        return
    text = program.text
    for name, value in program.knobs.items():
        text = re.sub(rf"(?m)^({name} = knob\()\w+", rf"\g<1>{value}", text)
    yield kind, text
