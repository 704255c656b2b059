"""A run's log in outline: evaluations without their builds and verdicts, which only the page of one program needs.

A long run's events are megabytes of JSON, nearly all of it resources and evidence. Leaving them out where they are
decoded makes reading some ten times faster, and the log can be continued by the events that came since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from hipwright.archive.damage import read_event
from hipwright.archive.log import Evaluated, RunLog
from hipwright.archive.readable import EventRow, add_rows, event_pages, leave_out_orphans
from hipwright.archive.store import Archive
from hipwright.records import Evaluation, Event, Fault, Status, TargetResult, Timing


class _Target(msgspec.Struct, frozen=True):
    target: str
    timing: Timing | None = None


class _Evaluation(msgspec.Struct, frozen=True):
    """The fields of an Evaluation that an outline keeps."""

    task: str
    program: str
    status: Status
    fault: Fault | None = None
    message: str = ""
    targets: dict[str, _Target] = {}
    coverage: float = 0.0
    score: float | None = None
    score_kind: Any = "none"
    features: dict[str, float] = {}
    seconds: float = 0.0


class _Evaluated(msgspec.Struct, frozen=True):
    evaluation: _Evaluation
    cached: bool = False
    attempts: int = 1
    secret: bool = False


_DECODER = msgspec.json.Decoder(_Evaluated)


@dataclass
class Outline:
    """The outline of a run up to the event before `following`.

    log: its evaluations have of each target only the timing, if there is one. clocks: when each evaluation ended, Unix
    time; places: the seq of its event, both by proposal. calls: the events of language models' calls.
    """

    log: RunLog = field(default_factory=RunLog)
    following: int = 0
    clocks: dict[int, float] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    calls: list[Event] = field(default_factory=list)


def continue_outline(archive: Archive, run: str, outline: Outline, kinds: Sequence[str] = ()) -> set[int]:
    """Adds the events that came since, and returns the proposals that they are of (-1: of none).

    Rows that cannot be read are noted and left out. kinds: adds only events of these kinds.
    """
    known, numbers = len(archive.damaged), set[int]()
    for rows in event_pages(archive, run, outline.following, kinds):
        add_rows(archive, run, rows, partial(add_row, outline, run))
        numbers.update(row[2] for row in rows)
        outline.following = rows[-1][0] + 1 if rows else outline.following
    if len(archive.damaged) > known or any(row.run == run for row in archive.damaged):
        leave_out_orphans(outline.log)
        return {-1, *outline.log.proposed}
    return numbers


def add_row(outline: Outline, run: str, row: EventRow) -> None:
    """Adds an event. Raises what a damaged row raises."""
    seq, kind, number, data, clock = row
    if kind != "evaluated":
        event = read_event((run, *row))
        outline.log.add(event)
        if event.kind.startswith("call_"):
            outline.calls.append(event)
        return
    if not isinstance(number, int) or not isinstance(clock, float):
        raise ValueError("its columns have other types than an event's")
    found = _DECODER.decode(data)
    outline.log.evaluated[number] = Evaluated(
        evaluation=_shortened(found.evaluation),
        cached=found.cached,
        attempts=found.attempts,
        secret=found.secret,
    )
    outline.log.clock_started = outline.log.clock_started or clock
    outline.log.clock_ended = outline.clocks[number] = clock
    outline.places[number] = seq


def _shortened(found: _Evaluation) -> Evaluation:
    fields = {name: getattr(found, name) for name in _Evaluation.__struct_fields__ if name != "targets"}
    targets = {
        name: TargetResult(target=one.target, timing=one.timing) for name, one in found.targets.items() if one.timing
    }
    return Evaluation(**fields, targets=targets)
