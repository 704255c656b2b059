"""Reads what is left of an archive with damaged rows: one run's log, and a check of every row."""

from __future__ import annotations

from typing import Any

import msgspec

from hipwright.archive.damage import ROW_ERRORS, WHY_LIMIT, DamagedRow, printable, read_record, why_damaged
from hipwright.archive.faults import Reproducer
from hipwright.archive.log import RunLog
from hipwright.archive.store import Archive
from hipwright.errors import InfrastructureError
from hipwright.records import Program, Record, Task

RECORD_KINDS: dict[str, type[Record]] = {"Program": Program, "Task": Task, "Reproducer": Reproducer}
"""The records that are stored as blobs, by the names of their kinds."""


def readable_log(archive: Archive, run: str) -> RunLog:
    """The log of a run without the rows that cannot be read, which are added to `archive.damaged`.

    Where rows were left out, outcomes without their proposal are left out too.
    """
    log, known = RunLog(), len(archive.damaged)
    try:
        events = archive.events(run, skip_damaged=True)
    except InfrastructureError as error:  # a page of the file is damaged
        archive.note_damaged(DamagedRow(table="events", run=run, why=error.message[:WHY_LIMIT]))
        events = []
    for event in events:
        try:
            log.add(event)
        except InfrastructureError as error:
            why = str(error.__cause__ or error.message)[:WHY_LIMIT]
            archive.note_damaged(DamagedRow(table="events", run=run, row=str(event.seq), why=why))
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
    """Reads every row of the archive. Returns those that are damaged, and events and programs that are missing."""
    stored = set()
    for key, kind, text in archive.blobs():
        try:
            read_record(key, text, RECORD_KINDS[kind])
        except ROW_ERRORS as error:
            archive.note_damaged(DamagedRow(table="blobs", row=printable(key), why=why_damaged(error)))
        stored.add(key)
    names = [run.id for run in archive.runs()]
    for name in dict.fromkeys([*names, *(row.run for row in archive.damaged if row.table == "runs")]):
        log = readable_log(archive, name)
        count, last = archive.database.count_events(name), archive.last_seq(name)
        if count != last + 1:
            why = f"{last + 1 - count} of its events are missing"
            archive.note_damaged(DamagedRow(table="events", run=name, why=why))
        for key in sorted({one.program for one in log.proposed.values() if one.program} - stored):
            archive.note_damaged(DamagedRow(table="blobs", run=name, row=key, why=f"program {key} is missing"))
    return list(archive.damaged)
