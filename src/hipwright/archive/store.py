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

from hipwright.archive import schema
from hipwright.archive.lock import is_locked, run_lock
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Event, Program, Record, Run, Task

FILE = "archive.sqlite"
_BUSY_SECONDS = 30.0

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
    """The archive in folder `home`. Errors: BadInput (not an archive, too new), InfrastructureError (damaged)."""

    def __init__(self, home: Path, *, create: bool = True) -> None:
        self.home = Path(home)
        self.path = self.home / FILE
        if not create and not self.path.exists():
            raise BadInput(f"no archive in {self.home}", hint="run `hipwright optimize` first, or set HIPWRIGHT_HOME")
        self._mutex = threading.RLock()
        self._db = self._open()

    def close(self) -> None:
        """Closes the file; a closed archive cannot be used."""
        with self._mutex:
            self._db.close()

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

    def events(self, run: str) -> list[Event]:
        """The run's events, oldest first."""
        rows = self._rows("SELECT run, seq, kind, number, data, clock FROM events WHERE run = ? ORDER BY seq", run)
        return [
            Event(run=row[0], seq=row[1], kind=row[2], number=row[3], data=json.loads(row[4]), clock=row[5])
            for row in rows
        ]

    def runs(self) -> list[Run]:
        """All runs, oldest first."""
        return [Run.from_json(row[0]) for row in self._rows("SELECT data FROM runs ORDER BY ordinal")]

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
        why = f"{name!r} names {len(found)} runs" if found else f"no run {name!r}"
        raise BadInput(f"{why} in {self.home}", hint="`hipwright runs` lists them")

    def program(self, key: str) -> Program:
        """A stored program."""
        return self._get(key, Program)

    def task(self, key: str) -> Task:
        """A stored task."""
        return self._get(key, Task)

    def has(self, key: str) -> bool:
        """Whether a record is stored under `key`."""
        return bool(self._rows("SELECT 1 FROM blobs WHERE key = ?", key))

    def evaluation(self, cache_key: str) -> Evaluation | None:
        """The evaluation stored under this cache key by any run, else None."""
        rows = self._rows("SELECT data FROM events WHERE cache_key = ? LIMIT 1", cache_key)
        return Evaluation.from_dict(json.loads(rows[0][0])["evaluation"]) if rows else None

    # ---------------------------------------------------------------- locks

    def lock(self, run: str) -> AbstractContextManager[None]:
        """Holds the lock of a run. BadInput when another process holds it; released however this process ends."""
        return run_lock(self._lock_path(run), run)

    def is_locked(self, run: str) -> bool:
        """Whether a process holds the run's lock."""
        return is_locked(self._lock_path(run))

    # ---------------------------------------------------------------- SQLite

    def _lock_path(self, run: str) -> Path:
        return self.home / "locks" / f"{run}.lock"

    def _open(self) -> sqlite3.Connection:
        with self._errors():
            self.home.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._check(db)
            except BaseException:
                db.close()
                raise
            return db

    def _check(self, db: sqlite3.Connection) -> None:
        """Checks that the file is an archive before writing to it; creates the schema in a new file."""
        db.execute("BEGIN")  # one consistent read: another process may be creating the schema
        try:
            new = self._is_new(db)
        finally:
            db.execute("ROLLBACK")
        if new:
            _enter_wal(db)
            db.execute("BEGIN IMMEDIATE")
            if self._is_new(db):  # another process may have created it
                schema.create(db)
            db.execute("COMMIT")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")

    def _is_new(self, db: sqlite3.Connection) -> bool:
        identity = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if identity == schema.APPLICATION_ID and version > schema.SCHEMA_VERSION:
            raise BadInput(
                f"{self.path} was written by a newer hipwright (schema {version}, this one reads up to "
                f"{schema.SCHEMA_VERSION})",
                hint="upgrade hipwright, or point HIPWRIGHT_HOME to another folder",
            )
        if identity == schema.APPLICATION_ID:
            return False
        if identity or version or db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise BadInput(f"{self.path} is another program's database", hint="point HIPWRIGHT_HOME to another folder")
        return True

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:  # a KeyboardInterrupt too must roll back
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._mutex, self._errors():
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
        rows = [(record.key, type(record).__name__, record.to_json()) for record in records]
        db.executemany("INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING", rows)

    def _get(self, key: str, kind: type[R]) -> R:
        rows = self._rows("SELECT data FROM blobs WHERE key = ? AND kind = ?", key, kind.__name__)
        if not rows:
            raise BadInput(f"no {kind.__name__.lower()} {key} in {self.home}")
        with self._errors():
            record = kind.from_json(rows[0][0])
            if record.key != key:
                raise sqlite3.DatabaseError(f"{kind.__name__.lower()} {key} does not match its content key")
            return record

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns errors of SQLite and the file system into one-line errors of ours."""
        hint = "move the file away to start a new archive; `sqlite3 FILE .recover` may save what it holds"
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InfrastructureError(
                f"cannot use the archive {self.path}: {error}", hint="check its permissions and the free space"
            ) from error
        except (sqlite3.DatabaseError, msgspec.MsgspecError, json.JSONDecodeError) as error:
            raise InfrastructureError(f"the archive {self.path} is damaged: {error}", hint=hint) from error
        except OSError as error:
            raise BadInput(
                f"cannot use {self.home} as the archive's folder: {error.strerror}",
                hint="point HIPWRIGHT_HOME to a folder that can be written",
            ) from error


def _enter_wal(db: sqlite3.Connection) -> None:
    """Switches to WAL; SQLite does not wait for other processes here, so this retries."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
