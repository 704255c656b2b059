"""The archive: every run as an append-only log of events, and the programs and tasks that the events name.

    with Archive(home) as archive:
        archive.begin_run(run)
        archive.append(run.id, "proposed", 0, {...})

The contract, which tests/archive/archive_contract.py checks and the search relies on:

- Events are durable when `append` or `append_all` returns: a kill -9 or a power cut loses none of them.
- `append_all` is atomic, blobs included. Events are never changed or removed; `seq` counts 0, 1, 2, ... in each run.
- Any number of processes and threads may append and read concurrently. `lock` guards the work on one run.
- Records are stored under their content key: the same record is stored once, and a damaged one is detected.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hipwright.archive.damage import (
    ROW_ERRORS,
    DamagedRow,
    printable,
    read_event,
    read_record,
    read_run,
    read_text,
    store_record,
    why_damaged,
)
from hipwright.archive.lock import is_locked, run_lock
from hipwright.archive.opening import DAMAGED_HINT, archive_errors, not_writable, open_file
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Event, Program, Record, Run, Task

FILE = "archive.sqlite"
R = TypeVar("R", bound=Record)


class LogEntry(msgspec.Struct, frozen=True):
    """An event to append. cache_key: set on an evaluation that later runs may reuse."""

    kind: str
    number: int = -1
    data: Mapping[str, Any] = {}
    cache_key: str | None = None


def new_id() -> str:
    """Returns a new run id: the UTC time and four random hex digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


class Archive:
    """The archive in folder `home`. Errors: BadInput (not an archive, too new), InfrastructureError (damaged).

    create: False opens an existing archive, read-only where this process may not write it; `damaged` has the rows that
    reading skipped.
    """

    def __init__(self, home: Path, *, create: bool = True) -> None:
        self.home = Path(home)
        self.path = self.home / FILE
        if not create and not self.path.exists():
            raise BadInput(f"no archive in {self.home}", hint="run `hipwright optimize` first, or set HIPWRIGHT_HOME")
        self.damaged: list[DamagedRow] = []
        self._mutex = threading.RLock()
        self._db, self.read_only = open_file(self.path, create=create)
        self._db.text_factory = read_text

    def close(self) -> None:
        """Closes the file; a closed archive cannot be used."""
        with self._mutex:
            self._db.close()

    def refuse_writes(self) -> Archive:
        """Makes this connection one that only reads, also where the file could be written."""
        with self._mutex:
            self._db.execute("PRAGMA query_only = ON")
            self.read_only = True
        return self

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---------------------------------------------------------------- writing

    def begin_run(self, run: Run, data: Mapping[str, Any] | None = None, records: Sequence[Record] = ()) -> Event:
        """Adds a run and its first event, run_started. BadInput when the id is taken."""
        with self._transaction() as db:
            if db.execute("SELECT 1 FROM runs WHERE id = ?", (run.id,)).fetchone():
                raise BadInput(f"there is already a run {run.id}", hint=f"resume it: --resume {run.id}")
            db.execute("INSERT INTO runs SELECT ?, COALESCE(MAX(ordinal) + 1, 0), ? FROM runs", (run.id, run.to_json()))
            self._put_all(db, records)
            started = LogEntry("run_started", -1, {"run": run.to_dict(), **(data or {})})
            return self._insert(db, run.id, [started])[0]

    def append(self, run: str, kind: str, number: int = -1, data: Mapping[str, Any] | None = None) -> Event:
        """Appends one event; durable on return."""
        return self.append_all(run, [LogEntry(kind, number, data or {})])[0]

    def append_all(self, run: str, entries: Sequence[LogEntry], records: Sequence[Record] = ()) -> list[Event]:
        """Appends events and stores the records they name, atomically; durable on return."""
        with self._transaction() as db:
            if not db.execute("SELECT 1 FROM runs WHERE id = ?", (run,)).fetchone():
                raise BadInput(f"no run {run} in {self.home}")
            self._put_all(db, records)
            return self._insert(db, run, entries)

    def put(self, record: Record) -> str:
        """Stores a record under its content key and returns the key."""
        with self._transaction() as db:
            self._put_all(db, [record])
        return record.key

    # ---------------------------------------------------------------- reading

    def events(self, run: str, *, skip_damaged: bool = False, since: int = 0, until: int | None = None) -> list[Event]:
        """The run's events, oldest first: from the seq `since` on, to the one before `until`.

        skip_damaged: skip and note rows that cannot be read, instead of raising.
        """
        events = []
        for seq, kind, number, text, clock in self.event_rows(run, since=since, until=until):
            try:
                events.append(read_event((run, seq, kind, number, text, clock)))
            except ROW_ERRORS as error:
                damaged = DamagedRow(table="events", run=run, row=str(seq), why=why_damaged(error))
                if not skip_damaged:
                    raise InfrastructureError(
                        f"the archive {self.path} is damaged: {damaged.text}", hint=DAMAGED_HINT
                    ) from error
                self.note_damaged(damaged)
        return events

    def event_rows(self, run: str, *, since: int = 0, until: int | None = None) -> list[tuple[Any, ...]]:
        """(seq, kind, number, data, clock) of the run's events as stored; data is JSON in bytes."""
        query = """SELECT seq, kind, number, CAST(data AS BLOB), clock FROM events
            WHERE run = ? AND seq >= ? AND seq < ? ORDER BY seq"""
        return self._rows(query, run, since, 2**62 if until is None else until)

    def last_seq(self, run: str) -> int:
        """The seq of the run's last event; -1 without one."""
        return int(self._rows("SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = ?", run)[0][0])

    def changes(self) -> int:
        """A number that is another one after another process or connection has written to the file."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def runs(self) -> list[Run]:
        """All runs, oldest first. A run whose row is damaged is read from its first event, else skipped and noted."""
        found = []
        for name, text in self._rows("SELECT id, data FROM runs ORDER BY ordinal"):
            try:
                found.append(read_run(name, text))
            except ROW_ERRORS as error:
                self.note_damaged(DamagedRow(table="runs", run=printable(name), why=why_damaged(error)))
                found += self._started(name)
        return found

    def _started(self, name: str) -> list[Run]:
        """The run that the first event of a run holds; [] where that cannot be read either."""
        try:
            run = Run.from_dict(self.events(name, until=1)[0].data["run"])
        except (*ROW_ERRORS, IndexError, InfrastructureError):
            return []
        return [run] if run.id == name else []

    def note_damaged(self, row: DamagedRow) -> None:
        """Adds a row to `damaged`, once."""
        if row not in self.damaged:
            self.damaged.append(row)

    def run(self, name: str) -> Run:
        """The run called `name`: "latest", an id, or a unique prefix of an id. BadInput otherwise."""
        runs = self.runs()
        if not runs:
            raise BadInput(f"no runs in {self.home}", hint="run `hipwright optimize` first, or set HIPWRIGHT_HOME")
        if name == "latest":
            return runs[-1]
        found = [r for r in runs if r.id == name] or [r for r in runs if name and r.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        for row in self.damaged:
            if row.table == "runs" and row.run == name:
                raise InfrastructureError(f"the archive {self.path} is damaged: {row.text}", hint=DAMAGED_HINT)
        why = f"{name!r} names {len(found)} runs" if found else f"no run {name!r}"
        raise BadInput(f"{why} in {self.home}", hint="`hipwright runs` lists them")

    def program(self, key: str) -> Program:
        """A stored program."""
        return self._get(key, Program)

    def task(self, key: str) -> Task:
        """A stored task."""
        return self._get(key, Task)

    def find(self, key: str, kind: type[R]) -> R | None:
        """A stored record; None where there is none, or where it is damaged, which is noted."""
        try:
            return self._get(key, kind)
        except BadInput:
            return None
        except InfrastructureError as error:
            self.note_damaged(DamagedRow(table="blobs", row=key, why=why_damaged(error.__cause__ or error)))
            return None

    def has(self, key: str) -> bool:
        """Whether a record is stored under `key`."""
        return bool(self._rows("SELECT 1 FROM blobs WHERE key = ?", key))

    def blobs(self) -> list[tuple[Any, ...]]:
        """(key, kind, text) of every stored record, as stored."""
        return self._rows("SELECT key, kind, data FROM blobs ORDER BY key")

    def evaluation(self, cache_key: str) -> Evaluation | None:
        """The evaluation stored under this cache key by any run, else None. Damaged ones are skipped and noted."""
        for run, seq, text in self._rows("SELECT run, seq, data FROM events WHERE cache_key = ?", cache_key):
            try:
                return Evaluation.from_dict(json.loads(text.encode())["evaluation"])
            except ROW_ERRORS as error:
                self.note_damaged(
                    DamagedRow(table="events", run=printable(run), row=printable(seq), why=why_damaged(error))
                )
        return None

    # ---------------------------------------------------------------- locks

    def lock(self, run: str) -> AbstractContextManager[None]:
        """Holds the lock of a run. BadInput when another process holds it; released however this process ends."""
        if self.read_only:
            raise not_writable(self.path)
        return run_lock(self._lock_path(run), run)

    def is_locked(self, run: str) -> bool:
        """Whether a process holds the run's lock."""
        return is_locked(self._lock_path(run))

    # ---------------------------------------------------------------- SQLite

    def _lock_path(self, run: str) -> Path:
        return self.home / "locks" / f"{run}.lock"

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self.read_only:
            raise not_writable(self.path)
        with self._mutex, archive_errors(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:  # a KeyboardInterrupt too must roll back
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._mutex, archive_errors(self.path):
            return self._db.execute(query, arguments).fetchall()

    def _insert(self, db: sqlite3.Connection, run: str, entries: Sequence[LogEntry]) -> list[Event]:
        following = db.execute("SELECT COALESCE(MAX(seq) + 1, 0) FROM events WHERE run = ?", (run,)).fetchone()[0]
        events, clock = [], time.time()
        for seq, entry in enumerate(entries, following):
            text = msgspec.json.encode(entry.data, order="deterministic").decode()
            row = (run, seq, entry.kind, entry.number, text, clock, entry.cache_key)
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            # the data as it will be read back, so that a live run and a resumed one see equal values
            data = json.loads(text)
            events.append(Event(run=run, seq=seq, kind=entry.kind, number=entry.number, data=data, clock=clock))
        return events

    def _put_all(self, db: sqlite3.Connection, records: Sequence[Record]) -> None:
        for record in records:
            store_record(db, record)

    def _get(self, key: str, kind: type[R]) -> R:
        rows = self._rows("SELECT data FROM blobs WHERE key = ? AND kind = ?", key, kind.__name__)
        if not rows:
            raise BadInput(f"no {kind.__name__.lower()} {key} in {self.home}")
        try:
            return read_record(key, rows[0][0], kind)
        except ROW_ERRORS as error:
            raise InfrastructureError(
                f"the archive {self.path} is damaged: {why_damaged(error)}", hint=DAMAGED_HINT
            ) from error
