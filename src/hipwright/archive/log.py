"""Reads a run's events back as records; used by resume, queries, lineage and export.

The events of a search, in the order they are appended:

    run_started           the Run, the task's key and name, the evaluator's fingerprint
    proposed   n          the Expansion, the program's key and choices, the round; a whole round in one transaction
    counted    n          what limits program n by its counters, before the first proposal that has it as a parent
    evaluated  n          the Evaluation, as soon as it is known
    decided    n          the Decision; a whole round in one transaction
    confirmed  n          the winner verified again on fresh inputs
    call_reserved, call_released, call_settled, call_refused  n   a language model's call (docs/llm-budget.md)
    fault, fault_checked  what the engine's first answer was refused for, and its file run alone (archive/faults.py)
    interrupted, resumed  not part of the outcome
    finished              the reason and the best program
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hipwright.archive.choice_names import current_choices, current_notes
from hipwright.archive.faults import EngineFault, add_fault
from hipwright.errors import InfrastructureError
from hipwright.records import Decision, Evaluation, Event, Expansion, Record

AUTHOR_NOTE = "author"
"""The key of a proposal's notes that names its author: "engine" or "llm"."""


STATIC = "static"
"""The source of a `Counted` without a profile."""


class Proposed(Record, frozen=True, kw_only=True):
    """One proposal. program: its key, "" when writing failed with `error`.

    duplicate_of: the number of an earlier proposal with the same program, which is not evaluated again. notes: the
    source's notes on its origin.
    """

    expansion: Expansion
    round: int
    program: str = ""
    choices: dict[str, Any] = msgspec.field(default_factory=dict)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    duplicate_of: int | None = None
    error: str = ""

    @classmethod
    def read(cls, data: dict[str, Any]) -> Proposed:
        """Reads a `proposed` event of any version; choices and notes get their present names."""
        found = cls.from_dict(data)
        expansion, action = found.expansion, found.expansion.action
        if isinstance(drawn := action.get("choices"), dict):
            action = {**action, "choices": current_choices(drawn)}
            expansion = msgspec.structs.replace(expansion, action=action)
        choices, notes = current_choices(found.choices), current_notes(found.notes)
        return msgspec.structs.replace(found, expansion=expansion, choices=choices, notes=notes)

    @property
    def number(self) -> int:
        """The proposal's number in its run."""
        return self.expansion.number

    @property
    def author(self) -> str:
        """Who wrote the program: "engine" or "llm", "" where the source does not say."""
        return str(self.notes.get(AUTHOR_NOTE, ""))

    @property
    def evaluable(self) -> bool:
        """Whether it has a program that is new in the run."""
        return bool(self.program) and self.duplicate_of is None


class Evaluated(Record, frozen=True, kw_only=True):
    """One evaluation. cached: taken from an earlier run; attempts: more than 1 after infrastructure faults.

    secret: on inputs that were drawn in secret after the program was written, as a confirmation's are.
    """

    evaluation: Evaluation
    cached: bool = False
    attempts: int = 1
    secret: bool = False


class Confirmed(Record, frozen=True, kw_only=True):
    """The second verification of a winner."""

    program: str
    passed: bool
    evaluation: Evaluation


class Counted(Record, frozen=True, kw_only=True):
    """What limits a verified program: a profile of it, or else its static record.

    round: that asked for it. source: "ncu", "rocprofv3", "simulated" or "static". limit: one of `search.moves.LIMITS`,
    "" where nothing is known. kernel: the limiting one. figures: those of the profile that the limit follows from.
    cost: evaluations of the run's budget. error: why a profile was wanted and not made; then the source is "static".
    """

    program: str
    round: int
    source: str
    limit: str = ""
    kernel: str = ""
    text: str = ""
    advice: str = ""
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    seconds: float = 0.0
    cost: int = 0
    error: str = ""

    @property
    def profiled(self) -> bool:
        """Whether a profile stands behind it."""
        return self.source != STATIC


class Finished(Record, frozen=True, kw_only=True):
    """How a search ended. best: the winner's key, "" when nothing was verified; number: its proposal."""

    reason: str
    best: str = ""
    number: int = -1
    score: float | None = None
    evaluations: int = 0
    rounds: int = 0


class Called(Record, frozen=True, kw_only=True):
    """One answered call to a language model. request: its key; model: as it was asked for; usage: tokens by kind."""

    request: str
    number: int
    role: str
    index: int
    model: str
    text: str
    finish: str
    usage: dict[str, int]

    @classmethod
    def of(cls, event: Event) -> Called:
        """Read a call_settled event."""
        answer = event.data["answer"]
        asked = {key: event.data[key] for key in ("role", "index", "model")}
        answered = {key: answer[key] for key in ("request", "text", "finish", "usage")}
        return cls.from_dict({"number": event.number, **asked, **answered})


@dataclass
class RunLog:
    """All records of one run, by proposal number; `called` by the request's key. seq: of the last event."""

    started: dict[str, Any] = field(default_factory=dict)
    proposed: dict[int, Proposed] = field(default_factory=dict)
    evaluated: dict[int, Evaluated] = field(default_factory=dict)
    counted: dict[int, Counted] = field(default_factory=dict)
    decided: dict[int, Decision] = field(default_factory=dict)
    confirmed: dict[int, Confirmed] = field(default_factory=dict)
    called: dict[str, Called] = field(default_factory=dict)
    faults: list[EngineFault] = field(default_factory=list)
    finished: Finished | None = None
    resumes: int = 0
    seq: int = -1
    clock_started: float = 0.0
    clock_ended: float = 0.0

    def add(self, event: Event) -> None:
        """Adds one event; unknown kinds are ignored. InfrastructureError when it cannot be read."""
        try:
            self._add(event)
        except (msgspec.MsgspecError, KeyError, ValueError, TypeError, AttributeError) as error:
            raise InfrastructureError(f"event {event.seq} of run {event.run} cannot be read: {error}") from error
        self.seq = event.seq
        self.clock_started = self.clock_started or event.clock
        self.clock_ended = event.clock

    def _add(self, event: Event) -> None:
        if event.kind == "run_started":
            self.started = event.data
        elif event.kind == "proposed":
            self.proposed[event.number] = Proposed.read(event.data)
        elif event.kind == "evaluated":
            self.evaluated[event.number] = Evaluated.from_dict(event.data)
        elif event.kind == "counted":
            self.counted[event.number] = Counted.from_dict(event.data)
        elif event.kind == "decided":
            self.decided[event.number] = Decision.from_dict(event.data)
        elif event.kind == "confirmed":
            self.confirmed[event.number] = Confirmed.from_dict(event.data)
        elif event.kind == "call_settled":
            called = Called.of(event)
            self.called.setdefault(called.request, called)  # the first answer is the one that the run used
        elif event.kind == "finished":
            self.finished = Finished.from_dict(event.data)
        elif event.kind == "resumed":
            self.resumes += 1
        else:
            add_fault(self.faults, event.kind, event.data, event.clock)


def as_stored(evaluation: Evaluation) -> Evaluation:
    """Returns the evaluation as the archive will return it (JSON has no NaN), so that a resumed run sees the same.

    One that cannot be stored becomes a fault of the service.
    """
    try:
        return Evaluation.from_json(evaluation.to_json())
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        return Evaluation(
            task=evaluation.task,
            program=evaluation.program,
            status="unscorable",
            fault="service",
            message=f"the evaluation cannot be stored: {error}",
        )


def read_log(events: Iterable[Event]) -> RunLog:
    """Reads the events of one run into a RunLog."""
    log = RunLog()
    for event in events:
        log.add(event)
    return log
