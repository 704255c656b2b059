"""Copies an archive into another one, of either database, without loss: texts, clocks and order stay as they are.

A copy may be repeated: what the target has is compared and left, and what came since is added, so one that was
interrupted goes on. Every event is read back from the target and compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from hipwright.archive.damage import ROW_ERRORS, DamagedRow, printable, read_event, read_record, read_run, why_damaged
from hipwright.archive.database import Blob, Database, StoredEvent
from hipwright.archive.readable import RECORD_KINDS
from hipwright.archive.store import Archive
from hipwright.errors import BadInput, InfrastructureError
from hipwright.events import Listener, silent
from hipwright.records import Record

EVENTS_AT_ONCE, BLOBS_AT_ONCE = 2000, 500
"""Rows of one transaction."""


class ArchiveCopy(Record, frozen=True, kw_only=True):
    """What a copy did. runs: that the target did not have; continued: to which it lacked events; unchanged: the rest.

    events, blobs: that were added. damaged: rows of the source that cannot be read; their runs were not copied.
    """

    runs: int = 0
    continued: int = 0
    unchanged: int = 0
    events: int = 0
    blobs: int = 0
    damaged: tuple[DamagedRow, ...] = ()


def copy(source: Archive, target: Archive, listener: Listener = silent) -> ArchiveCopy:
    """Adds to `target` what `source` has. Events for the listener: "stage" {text} for each run.

    Raises BadInput for a run that the two have differently, or that a process is working on in the target.
    """
    blobs, damaged = _copy_blobs(source, target)
    counts = {"runs": 0, "continued": 0, "unchanged": 0}
    events = 0
    there = {name for name, _ in target.database.run_rows()}
    for name, text in source.database.run_rows():
        bad = _damaged_rows(source.database, name, text)
        damaged += bad
        if bad:
            continue
        with target.lock(name):
            added = _copy_run(source, target, name, text)
        events += added
        kind = "runs" if name not in there else "continued" if added else "unchanged"
        counts[kind] += 1
        listener("stage", {"text": f"run {name}: {added} events added"})
    return ArchiveCopy(**counts, events=events, blobs=blobs, damaged=tuple(damaged))


def _copy_blobs(source: Archive, target: Archive) -> tuple[int, list[DamagedRow]]:
    page: list[Blob] = []
    damaged: list[DamagedRow] = []
    added = 0
    for key, kind, text in source.blobs():
        try:
            read_record(key, text, RECORD_KINDS[kind])
        except ROW_ERRORS as error:
            damaged.append(DamagedRow(table="blobs", row=printable(key), why=why_damaged(error)))
            continue
        page.append(Blob(key, kind, text))
        if len(page) == BLOBS_AT_ONCE:
            added += target.database.put(page)
            page = []
    return added + target.database.put(page), damaged


def _damaged_rows(database: Database, name: str, text: str) -> list[DamagedRow]:
    """The rows of a run that cannot be read: neither database is given what it could not return."""
    try:
        read_run(name, text)
    except ROW_ERRORS as error:
        return [DamagedRow(table="runs", run=printable(name), why=why_damaged(error))]
    found = []
    for place, row in enumerate(_stored(database, name)):
        try:
            read_event((name, row.seq, row.kind, row.number, row.data.encode(), row.clock))
            if row.seq != place:
                raise ValueError(f"event {place} is missing")
        except ROW_ERRORS as error:
            found.append(DamagedRow(table="events", run=name, row=printable(row.seq), why=why_damaged(error)))
            break
    return found


def _copy_run(source: Archive, target: Archive, name: str, text: str) -> int:
    """Adds the events that the target's run lacks; returns how many."""
    had = following = target.database.last_seq(name) + 1
    if (seq := _first_difference(source, target, name, 0, had)) is not None:
        raise BadInput(
            f"run {name} is another one in {target.place}: event {seq} differs",
            hint="copy into a new archive: another folder, or ?schema=NAME",
        )
    while rows := source.database.stored_events(name, following, following + EVENTS_AT_ONCE):
        target.database.restore(name, text, rows)
        following += len(rows)
    if not following:
        target.database.restore(name, text, [])
    leased = source.database.lease_rows(name)
    if leased.leases:
        target.database.restore_leases(name, leased)
    if (seq := _first_difference(source, target, name, had, following)) is not None:
        raise InfrastructureError(
            f"event {seq} of run {name} came back otherwise from {target.place}", hint="check the target's disk"
        )
    return following - had


def _first_difference(source: Archive, target: Archive, name: str, since: int, until: int) -> int | None:
    """The seq of the first of the target's events from `since` on that is not the source's; None without one."""
    pairs = zip_longest(_stored(source.database, name, since, until), _stored(target.database, name, since))
    return next((row.seq for ours, theirs in pairs if ours != theirs and (row := ours or theirs)), None)


def _stored(database: Database, name: str, since: int = 0, until: int | None = None) -> Iterator[StoredEvent]:
    """The events of a run, page by page."""
    while until is None or since < until:
        most = since + EVENTS_AT_ONCE
        rows = database.stored_events(name, since, most if until is None else min(most, until))
        yield from rows
        if not rows:
            return
        since = rows[-1].seq + 1
