"""New faults from programs that almost passed: another fault added, the same one in a branch, or a weaker one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hipwright.audit.evolve import branch_faults
from hipwright.audit.evolve.faults import Fault, FaultKind
from hipwright.audit.evolve.registry import KINDS
from hipwright.audit.evolve.subject import Edit, Subject, apply
from hipwright.errors import HipwrightError

WEAKER = ("0.1f", "0.01f", "0.001f")


@dataclass(frozen=True)
class Offspring:
    """A wrong program. how: drawn, combined, restricted or weakened; certain: wrong by construction."""

    kind: FaultKind
    how: str
    text: str
    fault: Fault
    certain: bool


@dataclass(frozen=True)
class NearMiss:
    """A refused program that almost passed, with the fault that made it from a verified one."""

    subject: Subject
    offspring: Offspring
    nearness: float


def drawn(subject: Subject, kind: FaultKind, fault: Fault) -> Offspring:
    """A verified program with one fault."""
    return Offspring(kind, "drawn", apply(subject.text, fault.edits), fault, kind.certain)


def bred(near: NearMiss, rng: random.Random) -> Iterator[Offspring]:
    """Programs made from one that almost passed, in a random order."""
    ways = [_restricted, _weakened, _combined]
    rng.shuffle(ways)
    for way in ways:
        yield from way(near, rng)


def _restricted(near: NearMiss, rng: random.Random) -> Iterator[Offspring]:
    """The fault happens under a condition only."""
    fault, subject = near.offspring.fault, near.subject
    if fault.function is None or len(fault.edits) != 1 or fault.form == "other":
        return
    edit = fault.edits[0]
    before = subject.text[edit.start : edit.end]
    conditions = [one for made in branch_faults.CONDITIONS for one in made(subject, fault.function)]
    for condition in rng.sample(conditions, min(3, len(conditions))):
        if fault.form == "expression":
            text = f"(({condition}) ? ({edit.text}) : ({before}))"
        else:
            text = f"if ({condition}) {{ {edit.text} }} else {{ {before} }}"
        yield _made(near, "restricted", Edit(edit.start, edit.end, text))


def _weakened(near: NearMiss, rng: random.Random) -> Iterator[Offspring]:
    """A part of the difference that the fault makes."""
    fault, subject = near.offspring.fault, near.subject
    if len(fault.edits) == 1 and fault.form == "expression":
        edit = fault.edits[0]
        before = subject.text[edit.start : edit.end]
        text = f"({before} + ({edit.text} - {before}) * {rng.choice(WEAKER)})"
        if any(s.start == edit.start for s in subject.stores):
            yield _made(near, "weakened", Edit(edit.start, edit.end, text))


def _combined(near: NearMiss, rng: random.Random) -> Iterator[Offspring]:
    """A second fault of any kind."""
    try:
        subject = Subject.of(near.offspring.text, near.subject.sizes)
    except HipwrightError:
        return
    kind = rng.choice(list(KINDS.values()))
    found = list(kind.faults(subject))
    if found:
        fault = rng.choice(found)
        text = apply(subject.text, fault.edits)
        # the second may make a condition of the first one's code false, and then nothing is certain any more
        yield Offspring(near.offspring.kind, "combined", text, fault, kind.certain)


def _made(near: NearMiss, how: str, edit: Edit) -> Offspring:
    fault = Fault((edit,), "other", near.offspring.fault.function)
    return Offspring(near.offspring.kind, how, apply(near.subject.text, (edit,)), fault, certain=False)
