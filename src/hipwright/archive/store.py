"""The archive: every run as an append-only log of events, and the programs and tasks that the events name.

    with Archive(home) as archive:
        archive.begin_run(run)
        archive.append(run.id, "proposed", 0, {...})

The contract, which tests/archive/archive_contract.py checks and the search relies on:

- Events are durable when `append` or `append_all` returns: a kill -9 or a power cut loses none of them.
- `append_all` is atomic, blobs included. Events are never changed or removed; `seq` counts 0, 1, 2, ... in each run.
- Any number of processes and threads may append and read concurrently. `lock` guards the work on one run.
- Records are stored under their content key: the same record is stored once, and a damaged one is detected.
- The result of a piece of work that is leased is stored once, whoever delivers it, and however often.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hipwright.archive.damage import (
    DAMAGED_HINT,
    ROW_ERRORS,
    DamagedRow,
    printable,
    read_event,
    read_record,
    read_run,
    why_damaged,
)
from hipwright.archive.database import LAST, Appended, Database, NewEvent, blobs_of
from hipwright.archive.place import Place, is_url, shown
from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Event, Program, Record, Run, Task

R = TypeVar("R", bound=Record)


class LogEntry(msgspec.Struct, frozen=True):
    """An event to append. cache_key: set on an evaluation that later runs may reuse."""

    kind: str
    number: int = -1
    data: Mapping[str, Any] = {}
    cache_key: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """A piece of work that was given to one holder. number: in its run; attempt: 1, 2, ... of it."""

    run: str
    number: int
    attempt: int


def new_id() -> str:
    """Returns a new run id: the UTC time and four random hex digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


class Archive:
    """The archive at `place`: a folder, or the URL of a PostgreSQL database (archive/place.py).

    create: False opens an existing archive, read-only where this process may not write it; `damaged` has the rows that
    reading skipped. Errors: BadInput (no archive, too new, a wrong URL), InfrastructureError (damaged, not reachable).
    """

    def __init__(self, place: Place, *, create: bool = True) -> None:
        self.place = shown(place)
        self.damaged: list[DamagedRow] = []
        self.database: Database = _opened(place, create=create)

    def close(self) -> None:
        """Ends the connection; a closed archive cannot be used."""
        self.database.close()

    @property
    def read_only(self) -> bool:
        """Whether nothing can be stored."""
        return self.database.read_only

    def refuse_writes(self) -> Archive:
        """Makes this connection one that only reads, also where the archive could be written."""
        self.database.refuse_writes()
        return self

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---------------------------------------------------------------- writing

    def begin_run(self, run: Run, data: Mapping[str, Any] | None = None, records: Sequence[Record] = ()) -> Event:
        """Adds a run and its first event, run_started. BadInput when the id is taken."""
        started = [_encoded(LogEntry("run_started", -1, {"run": run.to_dict(), **(data or {})}))]
        appended = self.database.begin_run(run.id, run.to_json(), blobs_of(records), started)
        if appended is None:
            raise BadInput(f"there is already a run {run.id}", hint=f"resume it: --resume {run.id}")
        return _as_read(run.id, started, appended)[0]

    def append(self, run: str, kind: str, number: int = -1, data: Mapping[str, Any] | None = None) -> Event:
        """Appends one event; durable on return."""
        return self.append_all(run, [LogEntry(kind, number, data or {})])[0]

    def append_all(self, run: str, entries: Sequence[LogEntry], records: Sequence[Record] = ()) -> list[Event]:
        """Appends events and stores the records they name, atomically; durable on return."""
        events = [_encoded(entry) for entry in entries]
        appended = self.database.append(run, blobs_of(records), events)
        if appended is None:
            raise BadInput(f"no run {run} in {self.place}")
        return _as_read(run, events, appended)

    def put(self, record: Record) -> str:
        """Stores a record under its content key and returns the key."""
        self.database.put(blobs_of([record]))
        return record.key

    # ---------------------------------------------------------------- work shared by many

    def lease(self, run: str, number: int, holder: str, seconds: float) -> Lease | None:
        """Gives the piece of work `number` of a run to a holder, for so long; its result is then delivered once.

        None while another lease of it is not over, and once it has a result.
        """
        attempt = self.database.lease(run, number, holder, seconds)
        return None if attempt is None else Lease(run, number, attempt)

    def renew(self, lease: Lease, seconds: float) -> bool:
        """Makes a lease last `seconds` from now, 0 to give it back. False: the work is another's, or done."""
        return self.database.renew(lease.run, lease.number, lease.attempt, seconds)

    def deliver(self, lease: Lease, entries: Sequence[LogEntry], records: Sequence[Record] = ()) -> list[Event] | None:
        """Appends a leased piece of work's result; None, and nothing is stored, where another attempt's is there.

        A lease that is over may still deliver: the first result that comes is taken, and no finished one is lost. The
        same attempt may deliver again, and gets the events that it stored. BadInput for a lease that was never given.
        """
        if not entries:
            raise BadInput("a result has at least one event")
        events = [_encoded(entry) for entry in entries]
        appended = self.database.deliver(lease.run, lease.number, lease.attempt, blobs_of(records), events)
        return None if appended is None else _as_read(lease.run, events, appended)

    def claim(self, key: str, holder: str, seconds: float) -> bool:
        """Takes `key` for a holder for so long, or makes its claim last; False while another holder's is not over."""
        return self.database.claim(key, holder, seconds)

    def give_up(self, key: str, holder: str) -> None:
        """Ends a holder's claim of `key`, if it has one."""
        self.database.give_up(key, holder)

    # ---------------------------------------------------------------- reading

    def events(self, run: str, *, skip_damaged: bool = False, since: int = 0, until: int | None = None) -> list[Event]:
        """The run's events, oldest first: from the seq `since` on, to the one before `until`.

        skip_damaged: skip and note rows that cannot be read, instead of raising.
        """
        events = []
        for seq, kind, number, text, clock in self.database.event_rows(run, since, LAST if until is None else until):
            try:
                events.append(read_event((run, seq, kind, number, text, clock)))
            except ROW_ERRORS as error:
                damaged = DamagedRow(table="events", run=run, row=str(seq), why=why_damaged(error))
                if not skip_damaged:
                    raise InfrastructureError(
                        f"the archive {self.database.name} is damaged: {damaged.text}", hint=DAMAGED_HINT
                    ) from error
                self.note_damaged(damaged)
        return events

    def event_rows(
        self, run: str, *, since: int = 0, kinds: Sequence[str] = (), most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """(seq, kind, number, data, clock) of the run's events as stored; data: JSON in bytes. See `Database`."""
        return self.database.event_rows(run, since, LAST, kinds=kinds, most=most)

    def last_seq(self, run: str) -> int:
        """The seq of the run's last event; -1 without one."""
        return self.database.last_seq(run)

    def changes(self) -> int:
        """A number that is another one after another process or connection has written."""
        return self.database.changes()

    def runs(self) -> list[Run]:
        """All runs, oldest first. A run whose row is damaged is read from its first event, else skipped and noted."""
        return list(self.each_run())

    def each_run(self) -> Iterator[Run]:
        """The same, page by page."""
        return self._readable(self.database.run_rows())

    def latest_runs(self, count: int) -> list[Run]:
        """The latest runs, newest first; fewer where rows are damaged."""
        return list(self._readable(self.database.latest_run_rows(count)))

    def runs_from(self, start: str) -> list[Run]:
        """The runs whose id begins with `start`, oldest first; none for a text that cannot be an id."""
        return list(self._readable(self.database.run_rows_from(start))) if start.isprintable() else []

    def runs_at(self, ordinals: Sequence[int]) -> dict[int, Run]:
        """The runs of these ordinals: the first run of the archive has 0, the next 1; without unreadable ones."""
        rows = self.database.numbered_run_rows(ordinals)
        names = {name: ordinal for ordinal, name, _ in rows}
        return {names[run.id]: run for run in self._readable([row[1:] for row in rows])}

    def _readable(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[Run]:
        for name, text in rows:
            try:
                yield read_run(name, text)
            except ROW_ERRORS as error:
                self.note_damaged(DamagedRow(table="runs", run=printable(name), why=why_damaged(error)))
                yield from self._started(name)

    def _started(self, name: str) -> list[Run]:
        """The run that the first event of a run holds; [] where that cannot be read either."""
        try:
            run = Run.from_dict(self.events(name, until=1)[0].data["run"])
        except (*ROW_ERRORS, IndexError, InfrastructureError):
            return []
        return [run] if run.id == name else []

    def note_damaged(self, row: DamagedRow) -> None:
        """Adds a row to `damaged`, once, whatever found it first."""
        if all((one.table, one.run, one.row) != (row.table, row.run, row.row) for one in self.damaged):
            self.damaged.append(row)

    def run(self, name: str) -> Run:
        """The run called `name`: "latest", an id, or a unique prefix of an id. BadInput otherwise."""
        latest = self.latest_runs(1) or self.runs()[::-1]
        if not latest:
            raise BadInput(f"no runs in {self.place}", hint="run `hipwright optimize` first, or set HIPWRIGHT_HOME")
        if name == "latest":
            return latest[0]
        begin_so = self.runs_from(name)
        found = [run for run in begin_so if run.id == name] or (begin_so if name else [])
        if len(found) == 1:
            return found[0]
        for row in self.damaged:
            if row.table == "runs" and row.run == name:
                raise InfrastructureError(f"the archive {self.database.name} is damaged: {row.text}", hint=DAMAGED_HINT)
        why = f"{name!r} names {len(found)} runs" if found else f"no run {name!r}"
        raise BadInput(f"{why} in {self.place}", hint="`hipwright runs` lists them")

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

    def find_all(self, keys: Sequence[str], kind: type[R]) -> dict[str, R]:
        """Stored records by key, read at once; without those that are not there, or damaged, which is noted."""
        found = {}
        for key, text in self.database.blobs(keys, kind.__name__).items():
            try:
                found[key] = read_record(key, text, kind)
            except ROW_ERRORS as error:
                self.note_damaged(DamagedRow(table="blobs", row=key, why=why_damaged(error)))
        return found

    def has(self, key: str) -> bool:
        """Whether a record is stored under `key`."""
        return self.database.has_blob(key)

    def blobs(self) -> Iterator[tuple[Any, ...]]:
        """(key, kind, text) of every stored record, as stored."""
        return self.database.blob_rows()

    def evaluation(self, cache_key: str) -> Evaluation | None:
        """The evaluation stored under this cache key by any run, else None. Damaged ones are skipped and noted."""
        for run, seq, text in self.database.cached_rows(cache_key):
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
        return self.database.lock(run)

    def is_locked(self, run: str) -> bool:
        """Whether a process holds the run's lock."""
        return self.database.is_locked(run)

    def _get(self, key: str, kind: type[R]) -> R:
        text = self.database.blob(key, kind.__name__)
        if text is None:
            raise BadInput(f"no {kind.__name__.lower()} {key} in {self.place}")
        try:
            return read_record(key, text, kind)
        except ROW_ERRORS as error:
            raise InfrastructureError(
                f"the archive {self.database.name} is damaged: {why_damaged(error)}", hint=DAMAGED_HINT
            ) from error


def _opened(place: Place, *, create: bool) -> Database:
    if is_url(place):
        from hipwright.archive.postgres.opening import open_database  # SQLAlchemy: 0.2 s, and an extra

        return open_database(str(place), create=create)
    from hipwright.archive.sqlite.database import SqliteDatabase

    return SqliteDatabase(Path(place), create=create)


def _encoded(entry: LogEntry) -> NewEvent:
    text = msgspec.json.encode(entry.data, order="deterministic").decode()
    return NewEvent(entry.kind, entry.number, text, entry.cache_key)


def _as_read(run: str, events: Sequence[NewEvent], appended: Appended) -> list[Event]:
    """The events as they will be read back, so that a live run and a resumed one see equal values."""
    return [
        Event(run=run, seq=seq, kind=e.kind, number=e.number, data=json.loads(e.data), clock=appended.clock)
        for seq, e in enumerate(events, appended.first)
    ]
