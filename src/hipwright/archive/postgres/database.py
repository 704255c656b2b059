"""Runs, events and blobs in a PostgreSQL database.

Writers of one run wait for each other at the row of the run, writers of different runs do not. An append whose
connection is cut off at its commit is looked for before it is tried again, so that it is stored once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Connection, Select, Text, bindparam, func, select, update
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from hipwright.archive.database import AFTER, Appended, Blob, LeaseRows, NewEvent, StoredEvent, never_given
from hipwright.archive.postgres import leases
from hipwright.archive.postgres.digests import PostgresDigests, move_head
from hipwright.archive.postgres.faults import not_writable
from hipwright.archive.postgres.session import DatabaseSession
from hipwright.archive.postgres.tables import BLOBS, EVENTS, HEADS, RUNS

PAGE = 500
"""Blobs, and runs, that are read at once."""
_BEGIN_LOCK = 0x68697077
"""The advisory lock of those who begin a run, as each takes the next ordinal."""
_CHANGES = sql("SELECT hashtextextended(pg_current_snapshot()::text, 0)")


class PostgresDatabase:
    """The tables of one schema; see `Database`. session: connected, the schema is there and of this version."""

    def __init__(self, session: DatabaseSession) -> None:
        self._session = session
        self.name = session.address.shown
        self.digests = PostgresDigests(session)

    @property
    def read_only(self) -> bool:
        """Whether nothing may be stored."""
        return self._session.read_only

    def close(self) -> None:
        """Ends the connection."""
        self._session.close()

    def refuse_writes(self) -> None:
        """Makes this connection one that only reads."""
        self._session.refuse_writes()

    # ---------------------------------------------------------------- writing

    def begin_run(self, run: str, data: str, blobs: Sequence[Blob], events: Sequence[NewEvent]) -> Appended | None:
        """Adds a run with its first events and blobs; None where the id is taken."""
        clock = time.time()

        def work(db: Connection) -> Appended | None:
            db.execute(select(func.pg_advisory_xact_lock(_BEGIN_LOCK)))
            if db.scalar(select(RUNS.c.id).where(RUNS.c.id == run)) is not None:
                return Appended(0, clock) if _is_stored(db, run, 0, events, clock) else None
            _insert_run(db, run, data)
            _store(db, blobs)
            _insert(db, run, 0, events, clock)
            return Appended(0, clock)

        return self._session.write(work, run)

    def append(self, run: str, blobs: Sequence[Blob], events: Sequence[NewEvent]) -> Appended | None:
        """Appends events and stores blobs; None where there is no such run."""
        clock = time.time()
        tried: list[int] = []  # where an attempt began that may have been cut off at its commit

        def work(db: Connection) -> Appended | None:
            if not leases.is_there(db, run):
                return None
            for first in tried:
                if _is_stored(db, run, first, events, clock):
                    return Appended(first, clock)
            following = 1 + int(db.scalar(_last_seq(run)) or 0)
            tried.append(following)
            _store(db, blobs)
            _insert(db, run, following, events, clock)
            return Appended(following, clock)

        return self._session.write(work, run)

    def put(self, blobs: Sequence[Blob]) -> int:
        """Stores blobs; returns how many were stored or replaced."""
        return self._session.write(lambda db: _store(db, blobs))

    def restore(self, run: str, data: str, events: Sequence[StoredEvent]) -> None:
        """Adds events of another archive's run as they are, and the run where it is missing."""

        def work(db: Connection) -> None:
            db.execute(select(func.pg_advisory_xact_lock(_BEGIN_LOCK)))
            if db.scalar(select(RUNS.c.id).where(RUNS.c.id == run)) is None:
                _insert_run(db, run, data)
            last = int(db.scalar(_last_seq(run)) or 0)  # an earlier attempt may have been committed after all
            rows = [{"run": run, **event._asdict()} for event in events if event.seq > last]
            if rows:
                db.execute(insert(EVENTS), rows)
                move_head(db, run, events[-1].seq)

        self._session.write(work, run)

    # ---------------------------------------------------------------- leases

    def lease(self, run: str, number: int, holder: str, seconds: float) -> int | None:
        """Gives a piece of work to a holder; see `Database.lease`."""
        return self._session.write(lambda db: leases.grant(db, run, number, holder, seconds), run)

    def renew(self, run: str, number: int, attempt: int, seconds: float) -> bool:
        """Makes a lease last `seconds` from now; see `Database.renew`."""
        return self._session.write(lambda db: leases.prolong(db, run, number, attempt, seconds), run)

    def deliver(
        self, run: str, number: int, attempt: int, blobs: Sequence[Blob], events: Sequence[NewEvent]
    ) -> Appended | None:
        """Appends the result of a leased piece of work, once; see `Database.deliver`."""
        clock = time.time()

        def work(db: Connection) -> Appended | None:
            given = leases.is_there(db, run) and leases.was_given(db, run, number, attempt)
            if (found := leases.result_of(db, run, number)) is not None:
                return Appended(found.seq, found.clock) if found.attempt == attempt else None
            if not given:
                raise never_given(run, number, attempt)
            following = 1 + int(db.scalar(_last_seq(run)) or 0)
            _store(db, blobs)
            _insert(db, run, following, events, clock)
            leases.keep_result(db, run, number, attempt, following)
            return Appended(following, clock)

        return self._session.write(work, run)

    def claim(self, key: str, holder: str, seconds: float) -> bool:
        """Takes `key` for a holder, or makes its claim last; see `Database.claim`."""
        return self._session.write(lambda db: leases.claim(db, key, holder, seconds))

    def give_up(self, key: str, holder: str) -> None:
        """Ends a holder's claim of `key`."""
        self._session.write(lambda db: leases.give_up(db, key, holder))

    def lease_rows(self, run: str) -> LeaseRows:
        """What is leased of a run, and whose results were taken."""
        return LeaseRows(*(self._rows(query) for query in leases.stored(run)))

    def restore_leases(self, run: str, rows: LeaseRows) -> None:
        """Adds what another archive leased of a run; what is known already stays."""
        self._session.write(lambda db: leases.restore(db, run, rows), run)

    # ---------------------------------------------------------------- reading

    def event_rows(
        self, run: str, since: int, until: int, *, kinds: Sequence[str] = (), most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """(seq, kind, number, data in bytes, clock) of a run's events."""
        e = EVENTS.c
        query = select(e.seq, e.kind, e.number, e.data, e.clock).where(e.run == run, e.seq >= since, e.seq < until)
        query = query.where(e.kind.in_(kinds)) if kinds else query
        found = self._rows(query.order_by(e.seq).limit(most))
        return [(seq, kind, number, data.encode(), clock) for seq, kind, number, data, clock in found]

    def stored_events(self, run: str, since: int, until: int) -> list[StoredEvent]:
        """A run's events as stored."""
        e = EVENTS.c
        query = select(e.seq, e.kind, e.number, e.data, e.clock, e.cache_key)
        query = query.where(e.run == run, e.seq >= since, e.seq < until).order_by(e.seq)
        return [StoredEvent(*row) for row in self._rows(query)]

    def last_seq(self, run: str) -> int:
        """The seq of the run's last event; -1 without one."""
        return int(self._rows(_last_seq(run))[0][0])

    def count_events(self, run: str) -> int:
        """How many events a run has."""
        return int(self._rows(select(func.count()).where(EVENTS.c.run == run))[0][0])

    def changes(self) -> int:
        """A number that is another one after another connection to the server has written."""
        return int(self._session.read(lambda db: db.scalar(_CHANGES)) or 0)

    def run_rows(self) -> Iterator[tuple[Any, ...]]:
        """(id, data) of every run, oldest first."""
        last, more = -1, True
        while more:
            page = select(RUNS.c.ordinal, RUNS.c.id, RUNS.c.data).where(RUNS.c.ordinal > last)
            rows = self._rows(page.order_by(RUNS.c.ordinal).limit(PAGE))
            yield from (row[1:] for row in rows)
            more = len(rows) == PAGE
            last = rows[-1][0] if rows else last

    def last_ordinal(self) -> int:
        """The ordinal of the latest run; -1 without one."""
        return int(self._rows(select(func.coalesce(func.max(RUNS.c.ordinal), -1)))[0][0])

    def numbered_run_rows(self, ordinals: Sequence[int]) -> list[tuple[Any, ...]]:
        """(ordinal, id, data) of the runs of these ordinals, oldest first."""
        query = select(RUNS.c.ordinal, RUNS.c.id, RUNS.c.data).order_by(RUNS.c.ordinal)
        asked = bindparam("ordinals", list(ordinals), ARRAY(BigInteger))
        return self._rows(query.where(RUNS.c.ordinal == func.any(asked))) if ordinals else []

    def latest_run_rows(self, count: int) -> list[tuple[Any, ...]]:
        """(id, data) of the latest runs, newest first."""
        return self._rows(select(RUNS.c.id, RUNS.c.data).order_by(RUNS.c.ordinal.desc()).limit(count))

    def run_rows_from(self, start: str) -> list[tuple[Any, ...]]:
        """(id, data) of the runs whose id begins so, oldest first."""
        these = (RUNS.c.id >= start) & (RUNS.c.id < start + AFTER)
        return self._rows(select(RUNS.c.id, RUNS.c.data).where(these).order_by(RUNS.c.ordinal))

    def blob(self, key: str, kind: str) -> str | None:
        """The text of a blob of this kind."""
        rows = self._rows(select(BLOBS.c.data).where(BLOBS.c.key == key, BLOBS.c.kind == kind))
        return rows[0][0] if rows else None

    def blobs(self, keys: Sequence[str], kind: str) -> dict[str, str]:
        """The texts of blobs of this kind, by key."""
        query = select(BLOBS.c.key, BLOBS.c.data).where(BLOBS.c.key.in_(keys), BLOBS.c.kind == kind)
        return dict(self._rows(query))

    def has_blob(self, key: str) -> bool:
        """Whether there is a blob under this key."""
        return bool(self._rows(select(BLOBS.c.key).where(BLOBS.c.key == key)))

    def known_blobs(self, keys: Collection[str]) -> set[str]:
        """Those of the keys under which there is a blob."""
        asked = bindparam("keys", list(keys), ARRAY(Text))
        return {row[0] for row in self._rows(select(BLOBS.c.key).where(BLOBS.c.key == func.any(asked)))}

    def blob_rows(self) -> Iterator[tuple[Any, ...]]:
        """(key, kind, data) of every blob, by key."""
        last, more = "", True
        while more:
            page = select(BLOBS.c.key, BLOBS.c.kind, BLOBS.c.data).where(BLOBS.c.key > last)
            rows = self._rows(page.order_by(BLOBS.c.key).limit(PAGE))
            yield from rows
            more = len(rows) == PAGE
            last = rows[-1][0] if rows else last

    def cached_rows(self, cache_key: str) -> list[tuple[Any, ...]]:
        """(run, seq, data) of the events with this cache key."""
        return self._rows(select(EVENTS.c.run, EVENTS.c.seq, EVENTS.c.data).where(EVENTS.c.cache_key == cache_key))

    def _rows(self, query: Select[Any]) -> list[tuple[Any, ...]]:
        return self._session.read(lambda db: [tuple(row) for row in db.execute(query)])

    # ---------------------------------------------------------------- locks

    @contextmanager
    def lock(self, run: str) -> Iterator[None]:
        """Holds a run's lock, an advisory lock of the connection."""
        if self.read_only:
            raise not_writable(self._session.address)
        self._session.take(run)
        try:
            yield
        finally:
            self._session.give_back(run)

    def is_locked(self, run: str) -> bool:
        """Whether a connection holds the run's lock."""
        return self._session.is_locked(run)


def _insert_run(db: Connection, run: str, data: str) -> None:
    following = select(func.coalesce(func.max(RUNS.c.ordinal) + 1, 0)).scalar_subquery()
    db.execute(insert(RUNS).values(id=run, ordinal=following, data=data))
    db.execute(insert(HEADS).values(run=run, seq=-1, kept=-2))


def _last_seq(run: str) -> Select[Any]:
    return select(func.coalesce(func.max(EVENTS.c.seq), -1)).where(EVENTS.c.run == run)


def _insert(db: Connection, run: str, first: int, events: Sequence[NewEvent], clock: float) -> None:
    if events:
        rows = [{"run": run, "seq": seq, "clock": clock, **e._asdict()} for seq, e in enumerate(events, first)]
        db.execute(insert(EVENTS), rows)
        move_head(db, run, first + len(events) - 1)


def _is_stored(db: Connection, run: str, first: int, events: Sequence[NewEvent], clock: float) -> bool:
    """Whether just these events are stored from `first` on: an earlier attempt was committed after all."""
    e = EVENTS.c
    query = select(e.kind, e.number, e.data, e.cache_key, e.clock)
    query = query.where(e.run == run, e.seq >= first, e.seq < first + len(events)).order_by(e.seq)
    return [tuple(row) for row in db.execute(query)] == [(*event, clock) for event in events]


def _store(db: Connection, blobs: Sequence[Blob]) -> int:
    """Stores blobs; returns how many were stored or replaced. Of two writers of a new one, the second finds it."""
    if not blobs:
        return 0
    stored = select(BLOBS.c.key, BLOBS.c.kind, BLOBS.c.data).where(BLOBS.c.key.in_([blob.key for blob in blobs]))
    found = {row.key: Blob(*row) for row in db.execute(stored)}
    new = [blob for blob in blobs if blob.key not in found]
    damaged = [blob for blob in blobs if found.get(blob.key, blob) != blob]
    if new:
        db.execute(insert(BLOBS).on_conflict_do_nothing(), [blob._asdict() for blob in new])
    for blob in damaged:  # only the same content has the same key
        db.execute(sql("SET LOCAL hipwright.mend = 'on'"))
        db.execute(update(BLOBS).where(BLOBS.c.key == blob.key).values(kind=blob.kind, data=blob.data))
        db.execute(sql("SET LOCAL hipwright.mend = 'off'"))
    return len(new) + len(damaged)
