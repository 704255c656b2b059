"""Runs, events and blobs in one SQLite file."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hipwright.archive.damage import read_text
from hipwright.archive.database import AFTER, Appended, Blob, LeaseRows, NewEvent, StoredEvent, never_given
from hipwright.archive.lock import is_locked, run_lock
from hipwright.archive.place import NoArchive
from hipwright.archive.sqlite import schema
from hipwright.archive.sqlite.digests import AT_ONCE, SqliteDigests
from hipwright.archive.sqlite.opening import archive_errors, not_writable, open_file

FILE = "archive.sqlite"
V = TypeVar("V", int, str)


class SqliteDatabase:
    """The file in folder `home`; see `Database`. create: False opens an existing one, maybe only to read."""

    def __init__(self, home: Path, *, create: bool) -> None:
        self.home = home
        self.path = home / FILE
        self.name = str(self.path)
        if not create and not self.path.exists():
            raise NoArchive(str(home))
        self._mutex = threading.RLock()
        self.connection, self.read_only = open_file(self.path, create=create)
        self.connection.text_factory = read_text
        self.digests = SqliteDigests(self._rows, self._transaction)

    def close(self) -> None:
        """Closes the file."""
        with self._mutex:
            self.connection.close()

    def refuse_writes(self) -> None:
        """Makes this connection one that only reads, also where the file could be written."""
        with self._mutex:
            self.connection.execute("PRAGMA query_only = ON")
            self.read_only = True

    # ---------------------------------------------------------------- writing

    def begin_run(self, run: str, data: str, blobs: Sequence[Blob], events: Sequence[NewEvent]) -> Appended | None:
        """Adds a run with its first events and blobs; None where the id is taken."""
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
                return None
            db.execute("INSERT INTO runs SELECT ?, COALESCE(MAX(ordinal) + 1, 0), ? FROM runs", (run, data))
            self._store(db, blobs)
            return self._insert(db, run, events)

    def append(self, run: str, blobs: Sequence[Blob], events: Sequence[NewEvent]) -> Appended | None:
        """Appends events and stores blobs; None where there is no such run."""
        with self._transaction() as db:
            if not db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
                return None
            self._store(db, blobs)
            return self._insert(db, run, events)

    def put(self, blobs: Sequence[Blob]) -> int:
        """Stores blobs; returns how many were stored or replaced."""
        with self._transaction() as db:
            return self._store(db, blobs)

    def restore(self, run: str, data: str, events: Sequence[StoredEvent]) -> None:
        """Adds events of another archive's run as they are, and the run where it is missing."""
        with self._transaction() as db:
            if not db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
                db.execute("INSERT INTO runs SELECT ?, COALESCE(MAX(ordinal) + 1, 0), ? FROM runs", (run, data))
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", [(run, *event) for event in events])

    def _insert(self, db: sqlite3.Connection, run: str, events: Sequence[NewEvent]) -> Appended:
        following = db.execute("SELECT COALESCE(MAX(seq) + 1, 0) FROM events WHERE run = ?", (run,)).fetchone()[0]
        clock = time.time()
        rows = [(run, seq, e.kind, e.number, e.data, clock, e.cache_key) for seq, e in enumerate(events, following)]
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return Appended(following, clock)

    def _store(self, db: sqlite3.Connection, blobs: Sequence[Blob]) -> int:
        stored_now = 0
        for blob in blobs:
            stored = db.execute("SELECT kind, data FROM blobs WHERE key = ?", (blob.key,)).fetchone()
            if stored is None:
                db.execute("INSERT INTO blobs VALUES (?, ?, ?)", blob)
                stored_now += 1
            elif stored != (blob.kind, blob.data):  # damaged: only the same content has the same key
                db.execute("DROP TRIGGER IF EXISTS blobs_no_UPDATE")
                db.execute("UPDATE blobs SET kind = ?, data = ? WHERE key = ?", (blob.kind, blob.data, blob.key))
                db.execute(schema.frozen("blobs", "UPDATE"))
                stored_now += 1
        return stored_now

    # ---------------------------------------------------------------- leases

    def lease(self, run: str, number: int, holder: str, seconds: float) -> int | None:
        """Gives a piece of work to a holder; see `Database.lease`."""
        with self._leases() as db:
            latest = self._latest_lease(db, run, number)
            if self._result(db, run, number) or (latest and latest[1] > time.time()):
                return None
            attempt = 1 + (latest[0] if latest else 0)
            row = (run, number, attempt, holder, time.time() + seconds)
            db.execute("INSERT INTO leases VALUES (?, ?, ?, ?, ?)", row)
            return attempt

    def renew(self, run: str, number: int, attempt: int, seconds: float) -> bool:
        """Makes a lease last `seconds` from now; see `Database.renew`."""
        with self._leases() as db:
            latest = self._latest_lease(db, run, number)
            if self._result(db, run, number) or latest is None or latest[0] != attempt:
                return False
            change = "UPDATE leases SET until = ? WHERE run = ? AND number = ? AND attempt = ?"
            db.execute(change, (time.time() + seconds, run, number, attempt))
            return True

    def deliver(
        self, run: str, number: int, attempt: int, blobs: Sequence[Blob], events: Sequence[NewEvent]
    ) -> Appended | None:
        """Appends the result of a leased piece of work, once; see `Database.deliver`."""
        with self._leases() as db:
            if found := self._result(db, run, number):
                return Appended(found[1], found[2]) if found[0] == attempt else None
            latest = self._latest_lease(db, run, number)
            if latest is None or not 1 <= attempt <= latest[0]:
                raise never_given(run, number, attempt)
            self._store(db, blobs)
            appended = self._insert(db, run, events)
            db.execute("INSERT INTO results VALUES (?, ?, ?, ?)", (run, number, attempt, appended.first))
            return appended

    def claim(self, key: str, holder: str, seconds: float) -> bool:
        """Takes `key` for a holder, or makes its claim last; see `Database.claim`."""
        with self._transaction() as db:
            db.execute(schema.CLAIMS)
            change = """INSERT INTO claims VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE
                SET holder = excluded.holder, until = excluded.until WHERE holder = excluded.holder OR until <= ?"""
            now = time.time()
            return db.execute(change, (key, holder, now + seconds, now)).rowcount == 1

    def give_up(self, key: str, holder: str) -> None:
        """Ends a holder's claim of `key`."""
        with self._transaction() as db:
            db.execute(schema.CLAIMS)
            db.execute("DELETE FROM claims WHERE key = ? AND holder = ?", (key, holder))

    def lease_rows(self, run: str) -> LeaseRows:
        """What is leased of a run, and whose results were taken."""
        if not self._rows("SELECT 1 FROM sqlite_master WHERE name = 'results'"):
            return LeaseRows([], [])
        leases = "SELECT number, attempt, holder, until FROM leases WHERE run = ? ORDER BY number, attempt"
        results = "SELECT number, attempt, seq FROM results WHERE run = ? ORDER BY number"
        return LeaseRows(self._rows(leases, run), self._rows(results, run))

    def restore_leases(self, run: str, rows: LeaseRows) -> None:
        """Adds what another archive leased of a run; what is known already stays."""
        with self._leases() as db:
            leases, results = ([(run, *row) for row in part] for part in rows)
            db.executemany("INSERT OR IGNORE INTO leases VALUES (?, ?, ?, ?, ?)", leases)
            db.executemany("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", results)

    @contextmanager
    def _leases(self) -> Iterator[sqlite3.Connection]:
        with self._transaction() as db:
            for statement in schema.LEASES:
                db.execute(statement)
            yield db

    def _latest_lease(self, db: sqlite3.Connection, run: str, number: int) -> tuple[int, float] | None:
        query = "SELECT attempt, until FROM leases WHERE run = ? AND number = ? ORDER BY attempt DESC LIMIT 1"
        row: tuple[int, float] | None = db.execute(query, (run, number)).fetchone()
        return row

    def _result(self, db: sqlite3.Connection, run: str, number: int) -> tuple[int, int, float] | None:
        """(attempt, seq of the first event, clock) of a piece of work's result."""
        query = """SELECT r.attempt, r.seq, e.clock FROM results AS r JOIN events AS e USING (run, seq)
            WHERE r.run = ? AND r.number = ?"""
        row: tuple[int, int, float] | None = db.execute(query, (run, number)).fetchone()
        return row

    # ---------------------------------------------------------------- reading

    def event_rows(
        self, run: str, since: int, until: int, *, kinds: Sequence[str] = (), most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """(seq, kind, number, data in bytes, clock) of a run's events."""
        wanted = f"AND kind IN ({_marks(kinds)})" if kinds else ""
        query = f"""SELECT seq, kind, number, CAST(data AS BLOB), clock FROM events
            WHERE run = ? AND seq >= ? AND seq < ? {wanted} ORDER BY seq LIMIT ?"""
        return self._rows(query, run, since, until, *kinds, -1 if most is None else most)

    def stored_events(self, run: str, since: int, until: int) -> list[StoredEvent]:
        """A run's events as stored."""
        query = """SELECT seq, kind, number, data, clock, cache_key FROM events
            WHERE run = ? AND seq >= ? AND seq < ? ORDER BY seq"""
        return [StoredEvent(*row) for row in self._rows(query, run, since, until)]

    def last_seq(self, run: str) -> int:
        """The seq of the run's last event; -1 without one."""
        return int(self._rows("SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = ?", run)[0][0])

    def count_events(self, run: str) -> int:
        """How many events a run has."""
        return int(self._rows("SELECT COUNT(*) FROM events WHERE run = ?", run)[0][0])

    def changes(self) -> int:
        """A number that is another one after another process or connection has written to the file."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def run_rows(self) -> Iterator[tuple[Any, ...]]:
        """(id, data) of every run, oldest first."""
        query = "SELECT ordinal, id, data FROM runs WHERE ordinal > ? ORDER BY ordinal LIMIT ?"
        last, more = -1, True
        while more:
            rows = self._rows(query, last, AT_ONCE)
            yield from (row[1:] for row in rows)
            more = len(rows) == AT_ONCE
            last = rows[-1][0] if rows else last

    def last_ordinal(self) -> int:
        """The ordinal of the latest run; -1 without one."""
        return int(self._rows("SELECT COALESCE(MAX(ordinal), -1) FROM runs")[0][0])

    def numbered_run_rows(self, ordinals: Sequence[int]) -> list[tuple[Any, ...]]:
        """(ordinal, id, data) of the runs of these ordinals, oldest first."""
        query = "SELECT ordinal, id, data FROM runs WHERE ordinal IN ({}) ORDER BY ordinal"
        return [row for part in _parts(ordinals) for row in self._rows(query.format(_marks(part)), *part)]

    def latest_run_rows(self, count: int) -> list[tuple[Any, ...]]:
        """(id, data) of the latest runs, newest first."""
        return self._rows("SELECT id, data FROM runs ORDER BY ordinal DESC LIMIT ?", count)

    def run_rows_from(self, start: str) -> list[tuple[Any, ...]]:
        """(id, data) of the runs whose id begins so, oldest first."""
        query = "SELECT id, data FROM runs WHERE id >= ? AND id < ? ORDER BY ordinal"
        return self._rows(query, start, start + AFTER)

    def blob(self, key: str, kind: str) -> str | None:
        """The text of a blob of this kind."""
        rows = self._rows("SELECT data FROM blobs WHERE key = ? AND kind = ?", key, kind)
        return rows[0][0] if rows else None

    def blobs(self, keys: Sequence[str], kind: str) -> dict[str, str]:
        """The texts of blobs of this kind, by key."""
        found = ((key, self.blob(key, kind)) for key in keys)
        return {key: text for key, text in found if text is not None}

    def has_blob(self, key: str) -> bool:
        """Whether there is a blob under this key."""
        return bool(self._rows("SELECT 1 FROM blobs WHERE key = ?", key))

    def known_blobs(self, keys: Collection[str]) -> set[str]:
        """Those of the keys under which there is a blob."""
        query = "SELECT key FROM blobs WHERE key IN ({})"
        return {row[0] for part in _parts(keys) for row in self._rows(query.format(_marks(part)), *part)}

    def blob_rows(self) -> Iterator[tuple[Any, ...]]:
        """(key, kind, data) of every blob, by key."""
        query = "SELECT key, kind, data FROM blobs WHERE key > CAST(? AS TEXT) ORDER BY key LIMIT ?"
        last, more = b"", True
        while more:  # page by page: all of them may be more than fits in memory
            rows = self._rows(query, last, AT_ONCE)
            yield from rows
            more = len(rows) == AT_ONCE
            last = rows[-1][0].encode("utf-8", "surrogateescape") if rows else last

    def cached_rows(self, cache_key: str) -> list[tuple[Any, ...]]:
        """(run, seq, data) of the events with this cache key."""
        return self._rows("SELECT run, seq, data FROM events WHERE cache_key = ?", cache_key)

    # ---------------------------------------------------------------- locks, transactions

    def lock(self, run: str) -> AbstractContextManager[None]:
        """Holds the lock file of a run."""
        if self.read_only:
            raise not_writable(self.path)
        return run_lock(self._lock_path(run), run)

    def is_locked(self, run: str) -> bool:
        """Whether a process holds the run's lock."""
        return is_locked(self._lock_path(run))

    def _lock_path(self, run: str) -> Path:
        return self.home / "locks" / f"{run}.lock"

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self.read_only:
            raise not_writable(self.path)
        with self._mutex, archive_errors(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:  # a KeyboardInterrupt too must roll back
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._mutex, archive_errors(self.path):
            return self.connection.execute(query, arguments).fetchall()


def _parts(values: Collection[V]) -> list[list[V]]:
    """The values in order, as many at a time as a query may name."""
    ordered = sorted(values)
    return [ordered[at : at + AT_ONCE] for at in range(0, len(ordered), AT_ONCE)]


def _marks(values: Sequence[object]) -> str:
    """A question mark for each value."""
    return ", ".join("?" * len(values))
