"""The digests of an archive in SQLite, and the tables by which they are found without reading what they are of.

`heads` has the last event of every run, which a trigger keeps, so that writers of any version do; `kept` is the last
event of which digests are kept. `verified` has the fastest programs of every run and lies in the order of their speed,
so that those of a task are read from few places of the disk; the first of each group lie together once more, in a
pack. `places` has the names of the groups. Triggers keep these three up to date, for writers of any version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from hipwright.archive.database import (
    AFTER,
    FASTEST,
    MOST_FASTEST,
    PACKS,
    REFUSED,
    Digest,
    RunDigests,
    VerifiedGroup,
    VerifiedRow,
    page_of,
    read_page,
)
from hipwright.archive.sqlite import schema
from hipwright.errors import BadInput, InfrastructureError

AT_ONCE = 500
"""Keys of one query; SQLite before 3.32 takes 999."""
_PLACES = "SELECT place, usable, refused FROM places WHERE place >= ?1 AND place < ?2 ORDER BY place"
_UNKEPT = "SELECT run FROM heads WHERE seq <> kept ORDER BY run"
_LAST = "SELECT id, (SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = runs.id) FROM runs"
_FASTEST = f"""SELECT place, kind, microseconds, program, run, data FROM verified
    WHERE place = ? AND kind < {REFUSED} ORDER BY kind, microseconds, program LIMIT ?"""
_REFUSED = f"SELECT program FROM verified WHERE place = ? AND kind = {REFUSED}"
_KEEP_VERIFIED = f"""INSERT INTO verified (place, kind, microseconds, program, run, data) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (place, program) DO UPDATE SET
        kind = excluded.kind, microseconds = excluded.microseconds, run = excluded.run, data = excluded.data
    WHERE verified.kind < {REFUSED} AND (excluded.kind = {REFUSED}
        OR (excluded.kind, excluded.microseconds, excluded.run) < (verified.kind, verified.microseconds, verified.run))
"""


class SqliteDigests:
    """See `DigestTables`. rows: reads; transaction: writes."""

    def __init__(
        self,
        rows: Callable[..., list[tuple[Any, ...]]],
        transaction: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        self._rows, self._transaction = rows, transaction
        self._known: set[str] = set()

    def of(self, kind: str, names: Sequence[str] | None = None) -> dict[str, Digest]:
        """The digests of a kind that are kept, by name."""
        if not self._has(table := _table(kind)):
            return {}
        query = f"SELECT kind, run, seq, data FROM {table} WHERE kind = ?"
        if names is None:
            rows = self._rows(query, kind)
        else:
            parts = [names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)]
            rows = []
            for part in parts:
                rows += self._rows(f"{query} AND run IN ({', '.join('?' * len(part))})", kind, *part)
        return {row[1]: Digest(*row) for row in rows}

    def keep(self, digests: Sequence[Digest]) -> None:
        """Keeps digests in the place of older ones."""
        self.renew()
        with self._transaction() as db:
            schema.create_digests(db)
            _replace(db, digests)

    def keep_runs(self, kept: Sequence[RunDigests]) -> None:
        """Keeps what was computed from runs."""
        self.renew()
        with self._transaction() as db:
            schema.create_digests(db)
            for one in kept:
                _replace(db, [one.digest])
                db.executemany(_KEEP_VERIFIED, one.verified)
                db.execute("UPDATE heads SET kept = ? WHERE run = ?", (one.digest.seq, one.digest.run))
            self._keep_pages(db, sorted({row.place for one in kept for row in one.verified}))

    def put_together(self, packs: Sequence[Digest], replaced: Sequence[Digest]) -> None:
        """Keeps packs in the place of digests."""
        with self._transaction() as db:
            schema.create_digests(db)
            for one in replaced:
                db.execute(f"DELETE FROM {_table(one.kind)} WHERE kind = ? AND run = ? AND seq = ?", one[:3])
            _replace(db, packs)

    def renew(self) -> None:
        """Makes the tables that an earlier version did not make."""
        if not self._has("heads") or self._has("places"):
            return
        with suppress(BadInput, InfrastructureError), self._transaction() as db:
            schema.create_digests(db)
            self._keep_pages(db, [row[0] for row in db.execute("SELECT place FROM places")])

    def _keep_pages(self, db: sqlite3.Connection, places: Sequence[str]) -> None:
        """Keeps the fastest programs of groups together, inside the transaction that changes them."""
        for place in places:
            with suppress(ValueError):  # damaged text: the programs are read one by one
                _replace(db, [page_of(place, self._fastest(place, MOST_FASTEST))])

    def last_seqs(self) -> dict[str, int]:
        """The seq of every run's last event."""
        return dict(self._rows("SELECT run, seq FROM heads" if self._has("heads") else _LAST))

    def unkept(self) -> list[str]:
        """The runs of whose last event no digests are kept."""
        rows = self._rows(_UNKEPT if self._has("heads") else "SELECT id FROM runs ORDER BY id")
        return [row[0] for row in rows]

    def groups(self, start: str = "") -> list[VerifiedGroup]:
        """The groups of programs."""
        if not self._has("heads"):
            return []
        query = _PLACES if self._has("places") else schema.GROUPS
        return [
            VerifiedGroup(name, bool(usable), bool(bad))
            for name, usable, bad in self._rows(query, start, start + AFTER)
        ]

    def fastest(self, groups: Sequence[str], limit: int) -> list[VerifiedRow]:
        """The fastest programs of each group."""
        pages, found = self.of(FASTEST, groups), []
        for group in groups:
            rows = read_page(pages.get(group), limit)
            found += self._fastest(group, limit) if rows is None else rows
        return found

    def _fastest(self, group: str, limit: int) -> list[VerifiedRow]:
        return [VerifiedRow(*row) for row in self._rows(_FASTEST, group, limit)]

    def refused(self, groups: Sequence[str]) -> set[str]:
        """The programs that are refused in one of the groups."""
        return {row[0] for group in groups for row in self._rows(_REFUSED, group)}

    def _has(self, table: str) -> bool:
        if table not in self._known and self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", table):
            self._known.add(table)
        return table in self._known


def _table(kind: str) -> str:
    return "packs" if kind.startswith(PACKS) else "digests"


def _replace(db: sqlite3.Connection, digests: Sequence[Digest]) -> None:
    for one in digests:
        db.execute(f"INSERT OR REPLACE INTO {_table(one.kind)} VALUES (?, ?, ?, ?)", one)
