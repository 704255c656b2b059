"""Reads what is left of an archive with damaged rows: one run's log, and a check of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from hipwright.archive.damage import (
    ROW_ERRORS,
    WHY_LIMIT,
    DamagedRow,
    printable,
    read_event,
    read_record,
    read_run,
    why_damaged,
)
from hipwright.archive.faults import Reproducer
from hipwright.archive.log import RunLog
from hipwright.archive.store import Archive
from hipwright.errors import InfrastructureError
from hipwright.records import Program, Record, Task

RECORD_KINDS: dict[str, type[Record]] = {"Program": Program, "Task": Task, "Reproducer": Reproducer}
"""The records that are stored as blobs, by the names of their kinds."""
EVENTS_AT_ONCE = 500
"""Events of a run that are read at once."""
EventRow = tuple[Any, ...]
"""An event as stored: (seq, kind, number, data in bytes, clock)."""


def event_pages(archive: Archive, run: str, since: int = 0, kinds: Sequence[str] = ()) -> Iterator[list[EventRow]]:
    """The run's events as stored, of these kinds or all, so many at a time. Where a page of the file is damaged, that
    is added to `archive.damaged`, and they end.
    """
    more = True
    while more:
        try:
            rows = archive.event_rows(run, since=since, kinds=kinds, most=EVENTS_AT_ONCE)
        except InfrastructureError as error:
            archive.note_damaged(DamagedRow(table="events", run=run, why=error.message[:WHY_LIMIT]))
            return
        yield rows
        more = len(rows) == EVENTS_AT_ONCE
        since = rows[-1][0] + 1 if rows else since


def add_rows(archive: Archive, run: str, rows: Sequence[EventRow], add: Callable[[EventRow], None]) -> None:
    """Calls `add` with each event; those that it cannot read are added to `archive.damaged`."""
    for row in rows:
        try:
            add(row)
        except (*ROW_ERRORS, InfrastructureError) as error:
            why = why_damaged(error.__cause__ or error)
            archive.note_damaged(DamagedRow(table="events", run=run, row=str(row[0]), why=why))


def readable_log(archive: Archive, run: str) -> RunLog:
    """The log of a run without the rows that cannot be read, which are added to `archive.damaged`.

    Where rows were left out, outcomes without their proposal are left out too.
    """
    log, known = RunLog(), len(archive.damaged)
    for rows in event_pages(archive, run):
        add_rows(archive, run, rows, lambda row: log.add(read_event((run, *row))))
    if len(archive.damaged) > known or any(row.run == run for row in archive.damaged):
        leave_out_orphans(log)
    return log


def leave_out_orphans(log: RunLog) -> None:
    """Leaves out outcomes without their proposal, and bests without their evaluation."""
    outcomes: tuple[dict[int, Any], ...] = (log.evaluated, log.decided, log.confirmed)
    for found in outcomes:
        for number in found.keys() - log.proposed.keys():
            del found[number]
    for number in log.decided.keys() - log.evaluated.keys():
        decision = log.decided[number]
        if decision.best:
            log.decided[number] = msgspec.structs.replace(decision, best=False)
    if log.finished is not None and log.finished.best and log.finished.number not in log.evaluated:
        log.finished = msgspec.structs.replace(log.finished, best="", number=-1, score=None)


def check(archive: Archive) -> list[DamagedRow]:
    """Reads every row of the archive. Returns those that are damaged, and events and programs that are missing.

    A page of rows at a time is in memory.
    """
    for key, kind, text in archive.blobs():
        try:
            read_record(key, text, RECORD_KINDS[kind])
        except ROW_ERRORS as error:
            archive.note_damaged(DamagedRow(table="blobs", row=printable(key), why=why_damaged(error)))
    for name, text in archive.database.run_rows():
        try:
            read_run(name, text)
        except ROW_ERRORS as error:
            archive.note_damaged(DamagedRow(table="runs", run=printable(name), why=why_damaged(error)))
        _check_events(archive, printable(name))
    return list(archive.damaged)


def _check_events(archive: Archive, run: str) -> None:
    """Notes what is damaged or missing of a run's events, and of the programs that they name."""
    missing, named = set[str](), set[str]()

    def add(row: EventRow) -> None:
        log = RunLog()  # of this event alone
        log.add(read_event((run, *row)))
        named.update(one.program for one in log.proposed.values() if one.program)

    for rows in event_pages(archive, run):
        add_rows(archive, run, rows, add)
        missing |= named - archive.database.known_blobs([key for key in named if key.isprintable()])
        named.clear()
    count, last = archive.database.count_events(run), archive.last_seq(run)
    if count != last + 1:
        why = f"{last + 1 - count} of its events are missing"
        archive.note_damaged(DamagedRow(table="events", run=run, why=why))
    for key in sorted(missing):
        archive.note_damaged(DamagedRow(table="blobs", run=run, row=key, why=f"program {key} is missing"))
