"""What an archive asks of a database. SQLite (archive/sqlite) and PostgreSQL (archive/postgres) answer alike.

Texts go in and come out as they are; what they mean is the archive's business (archive/store.py). Every writing call is
one transaction, durable when it returns. tests/archive/archive_contract.py is what both must pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Any, NamedTuple, Protocol

import msgspec

from hipwright.archive.packing import packed, unpacked
from hipwright.errors import BadInput
from hipwright.records import Record

LAST = 2**62
"""A seq that no run reaches."""
AFTER = "\U0010ffff"
"""What comes after every continuation of a text, in the order of bytes."""
REFUSED = 9
"""The kind of a verified row that stands for a program which a second verification refused."""


PACKS = "packs/"
"""How the kinds of digests begin that are long texts: packs of others."""
FASTEST = f"{PACKS}fastest/1"
"""The kind of digest that has the fastest programs of a group, packed (archive/packing.py); its run is the group."""
MOST_FASTEST = 128
"""The programs that such a digest has, at most; its seq is their number."""


class NewEvent(NamedTuple):
    """An event to append; data: JSON. cache_key: of an evaluation that later runs may reuse."""

    kind: str
    number: int
    data: str
    cache_key: str | None


class Blob(NamedTuple):
    """A record as stored. kind: its class; data: JSON."""

    key: str
    kind: str
    data: str


class StoredEvent(NamedTuple):
    """An event as stored. clock: Unix time."""

    seq: int
    kind: str
    number: int
    data: str
    clock: float
    cache_key: str | None


class LeaseRows(NamedTuple):
    """What is leased of a run. leases: (number, attempt, holder, until); results: (number, attempt, seq); in order."""

    leases: list[tuple[Any, ...]]
    results: list[tuple[Any, ...]]


class Digest(NamedTuple):
    """What was computed from a run's events up to `seq`, as JSON; it may be computed again at any time.

    run: the run's id; the key of a record for what is computed from one, with the seq 0.
    """

    kind: str
    run: str
    seq: int
    data: str


class VerifiedRow(NamedTuple):
    """A verified program of a run. place: its group, the task and targets of the run.

    kind: 0 measured, 1 estimated, 2 neither, `REFUSED`; microseconds: infinite without a figure; data: JSON.
    """

    place: str
    kind: int
    microseconds: float
    program: str
    run: str
    data: str


_READ_PAGE = msgspec.json.Decoder(list[tuple[str, int, float | None, str, str, str]])


class VerifiedGroup(NamedTuple):
    """The programs of runs of one task for the same targets. usable: some are not refused; refused: some are."""

    place: str
    usable: bool
    refused: bool


def page_of(place: str, rows: Sequence[VerifiedRow]) -> Digest:
    """The digest of a group's fastest programs, which are at most `MOST_FASTEST`, in their order.

    Raises ValueError for a row with damaged text.
    """
    return Digest(FASTEST, place, len(rows), packed(rows))  # JSON has null for what is infinite


def read_page(page: Digest | None, limit: int) -> list[VerifiedRow] | None:
    """So many of a group's fastest programs, of its digest; None where that is missing, damaged or has too few."""
    try:
        if page is not None and (limit <= page.seq or page.seq < MOST_FASTEST):
            rows = _READ_PAGE.decode(unpacked(page.data))[:limit]
            return [VerifiedRow(*row[:2], inf if row[2] is None else row[2], *row[3:]) for row in rows]
    except (msgspec.MsgspecError, ValueError):
        pass
    return None


class RunDigests(NamedTuple):
    """What is kept of one run. verified: its fastest programs, and those that were refused."""

    digest: Digest
    verified: Sequence[VerifiedRow]


class Appended(NamedTuple):
    """Where events were appended: the seq of the first, and their time, Unix."""

    first: int
    clock: float


def blobs_of(records: Sequence[Record]) -> list[Blob]:
    """Records as they are stored, each once, in the order of their keys: writers that share some never deadlock."""
    found = {record.key: Blob(record.key, type(record).__name__, record.to_json()) for record in records}
    return [found[key] for key in sorted(found)]


def never_given(run: str, number: int, attempt: int) -> BadInput:
    """The error for a result of an attempt that was not leased."""
    return BadInput(f"attempt {attempt} at {number} of run {run} was never leased", hint="lease it first")


class DigestTables(Protocol):
    """What was computed from runs and records and is kept, so that lists and searches read no events."""

    def of(self, kind: str, names: Sequence[str] | None = None) -> dict[str, Digest]:
        """The digests of a kind that are kept, by the run or record; of these, or of all."""

    def keep(self, digests: Sequence[Digest]) -> None:
        """Keeps digests in the place of older ones."""

    def put_together(self, packs: Sequence[Digest], replaced: Sequence[Digest]) -> None:
        """Keeps packs in the place of digests, at once; of these one that is newer by now stays."""

    def renew(self) -> None:
        """Makes what an earlier version did not make of these tables, where they can be written."""

    def keep_runs(self, kept: Sequence[RunDigests]) -> None:
        """Keeps what was computed from runs. Of a program in a group the fastest row stays, once refused that one."""

    def last_seqs(self) -> dict[str, int]:
        """The seq of every run's last event."""

    def unkept(self) -> list[str]:
        """The ids of the runs of whose events up to the last nothing is kept: that go on, or are not read yet."""

    def groups(self, start: str = "") -> list[VerifiedGroup]:
        """The groups of verified programs whose name begins so, by name; found without reading the programs."""

    def fastest(self, groups: Sequence[str], limit: int) -> list[VerifiedRow]:
        """The fastest programs of each group, at most `limit` of each, without those that it refused."""

    def refused(self, groups: Sequence[str]) -> set[str]:
        """The programs that are refused in one of the groups."""


class Database(Protocol):
    """A database of runs, events and blobs.

    name: how messages name it, never with a password. read_only: nothing may be stored. Errors: BadInput,
    InfrastructureError.
    """

    name: str

    @property
    def read_only(self) -> bool:
        """Whether nothing may be stored."""

    @property
    def digests(self) -> DigestTables:
        """What is computed from events, and kept."""

    def close(self) -> None:
        """Ends the connection."""

    def refuse_writes(self) -> None:
        """Makes this connection one that only reads."""

    def begin_run(self, run: str, data: str, blobs: Sequence[Blob], events: Sequence[NewEvent]) -> Appended | None:
        """Adds a run with its first events and blobs; None where the id is taken."""

    def append(self, run: str, blobs: Sequence[Blob], events: Sequence[NewEvent]) -> Appended | None:
        """Appends events and stores blobs, a damaged copy of which is replaced; None where there is no such run."""

    def put(self, blobs: Sequence[Blob]) -> int:
        """Stores blobs, each once; a damaged copy is replaced. Returns how many were stored or replaced."""

    def restore(self, run: str, data: str, events: Sequence[StoredEvent]) -> None:
        """Adds events of another archive's run as they are, and the run where it is missing; their blobs are there."""

    def event_rows(
        self, run: str, since: int, until: int, *, kinds: Sequence[str] = (), most: int | None = None
    ) -> list[tuple[Any, ...]]:
        """(seq, kind, number, data in bytes, clock) of a run's events from `since` to the one before `until`.

        kinds: only those of these kinds; of all without any. most: only the first so many.
        """

    def lease(self, run: str, number: int, holder: str, seconds: float) -> int | None:
        """Gives a piece of work to a holder; returns the attempt, from 1 on.

        None while another lease of it is not over, and once it has a result.
        """

    def renew(self, run: str, number: int, attempt: int, seconds: float) -> bool:
        """Makes a lease last `seconds` from now; False where it is not the latest any more, or there is a result."""

    def deliver(
        self, run: str, number: int, attempt: int, blobs: Sequence[Blob], events: Sequence[NewEvent]
    ) -> Appended | None:
        """Appends the result of a leased piece of work, once; None where another attempt's is there.

        The same attempt may deliver again: what it appended is returned. BadInput for an attempt that was never given.
        """

    def claim(self, key: str, holder: str, seconds: float) -> bool:
        """Takes `key` for a holder for so long, or makes its claim last; False while another holder's is not over."""

    def give_up(self, key: str, holder: str) -> None:
        """Ends a holder's claim of `key`, if it has one."""

    def lease_rows(self, run: str) -> LeaseRows:
        """What is leased of a run, and whose results were taken."""

    def restore_leases(self, run: str, rows: LeaseRows) -> None:
        """Adds what another archive leased of a run, whose events are there; what is known already stays."""

    def stored_events(self, run: str, since: int, until: int) -> list[StoredEvent]:
        """A run's events from `since` to the one before `until`, as stored."""

    def last_seq(self, run: str) -> int:
        """The seq of the run's last event; -1 without one."""

    def count_events(self, run: str) -> int:
        """How many events a run has."""

    def changes(self) -> int:
        """A number that is another one after another connection has written."""

    def run_rows(self) -> Iterator[tuple[Any, ...]]:
        """(id, data) of every run, oldest first, read page by page."""

    def last_ordinal(self) -> int:
        """The ordinal of the latest run; -1 without one. The runs have 0, 1, 2, ... in the order of their beginning."""

    def numbered_run_rows(self, ordinals: Sequence[int]) -> list[tuple[Any, ...]]:
        """(ordinal, id, data) of the runs of these ordinals, oldest first."""

    def latest_run_rows(self, count: int) -> list[tuple[Any, ...]]:
        """(id, data) of the latest runs, newest first."""

    def run_rows_from(self, start: str) -> list[tuple[Any, ...]]:
        """(id, data) of the runs whose id begins with `start`, oldest first."""

    def blob(self, key: str, kind: str) -> str | None:
        """The text of a blob of this kind."""

    def blobs(self, keys: Sequence[str], kind: str) -> dict[str, str]:
        """The texts of blobs of this kind, by key; without those that are not there."""

    def has_blob(self, key: str) -> bool:
        """Whether there is a blob of any kind under this key."""

    def known_blobs(self, keys: Collection[str]) -> set[str]:
        """Those of the keys under which there is a blob of any kind."""

    def blob_rows(self) -> Iterator[tuple[Any, ...]]:
        """(key, kind, data) of every blob, by key, read page by page."""

    def cached_rows(self, cache_key: str) -> list[tuple[Any, ...]]:
        """(run, seq, data) of the events with this cache key."""

    def lock(self, run: str) -> AbstractContextManager[None]:
        """Holds a run's lock. BadInput when another process holds it; released however this process ends."""

    def is_locked(self, run: str) -> bool:
        """Whether a process holds the run's lock."""
