"""Fault kinds: named changes of a program, one place at a time (registry.KINDS lists them)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hipwright.audit.evolve.subject import Edit, Function, Subject

Form = Literal["expression", "statement", "other"]
"""What an edit replaces: an expression and a statement can be restricted to a condition."""


@dataclass(frozen=True)
class Fault:
    """A change of one program. function: the device function it is in, where it is in one."""

    edits: tuple[Edit, ...]
    form: Form = "other"
    function: Function | None = None


Faults = Callable[[Subject], Iterator[Fault]]
EntryStatements = Callable[[Subject, Function], list[str]]


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault. certain: wrong by construction, wherever it applies and the machine code changes."""

    name: str
    faults: Faults
    certain: bool = False


def in_bodies(pattern: str, *templates: str, form: Form = "other", group: int | str = 0) -> Faults:
    """Faults that replace what a pattern matches in function bodies by each template (as `re.Match.expand`)."""
    compiled = re.compile(pattern)

    def faults(subject: Subject) -> Iterator[Fault]:
        for function, body in subject.bodies():
            for match in compiled.finditer(body):
                span = function.begin + match.start(group), function.begin + match.end(group)
                for template in templates:
                    yield Fault((Edit(*span, match.expand(template)),), form, function)

    return faults


def swapped(pattern: str, table: Mapping[str, str]) -> Faults:
    """Faults that replace what a pattern matches in function bodies by its entry in a table."""
    compiled = re.compile(pattern)

    def faults(subject: Subject) -> Iterator[Fault]:
        for function, body in subject.bodies():
            for match in compiled.finditer(body):
                span = function.begin + match.start(), function.begin + match.end()
                yield Fault((Edit(*span, table[match.group()]),), "other", function)

    return faults


def stored(*damages: str) -> Faults:
    """Faults that replace a stored value E by each damage, in which {E} stands for it."""

    def faults(subject: Subject) -> Iterator[Fault]:
        for store in subject.stores:
            value = subject.text[store.start : store.end]
            for damage in damages:
                edit = Edit(store.start, store.end, damage.replace("{E}", f"({value})"))
                yield Fault((edit,), "expression", store.function)

    return faults


def at_entry(*statements: EntryStatements) -> Faults:
    """Faults that insert statements at the begin of a kernel."""

    def faults(subject: Subject) -> Iterator[Fault]:
        for function in subject.functions:
            if function.entry:
                for text in [one for made in statements for one in made(subject, function)]:
                    yield Fault((Edit(function.begin + 1, function.begin + 1, f"\n    {text}"),), "other", function)

    return faults
