"""The digests of an archive in SQLite, and the tables by which they are found without reading what they are of.

`heads` has the last event of every run, which a trigger keeps, so that writers of any version do; `kept` is the last
event of which digests are kept. `verified` has the fastest programs of every run and lies in the order of their speed,
so that those of a task are read from few places of the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hipwright.archive.database import AFTER, REFUSED, Digest, RunDigests, VerifiedGroup, VerifiedRow
from hipwright.archive.sqlite import schema

_AT_ONCE = 500
"""Keys of one query; SQLite before 3.32 takes 999."""
_UNKEPT = "SELECT run FROM heads WHERE seq <> kept ORDER BY run"
_LAST = "SELECT id, (SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = runs.id) FROM runs"
_GROUPS = f"""WITH RECURSIVE found(name) AS (
    SELECT MIN(place) FROM verified WHERE place >= ?1 AND place < ?2
    UNION ALL SELECT (SELECT MIN(place) FROM verified WHERE place > found.name AND place < ?2)
    FROM found WHERE found.name IS NOT NULL)
    SELECT name, EXISTS (SELECT 1 FROM verified WHERE place = name AND kind < {REFUSED}),
        EXISTS (SELECT 1 FROM verified WHERE place = name AND kind = {REFUSED}) FROM found WHERE name IS NOT NULL"""
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

    def of(self, kind: str, names: Sequence[str] | None = None) -> dict[str, Digest]:
        """The digests of a kind that are kept, by name."""
        if not self._has("digests"):
            return {}
        query = "SELECT kind, run, seq, data FROM digests WHERE kind = ?"
        if names is None:
            rows = self._rows(query, kind)
        else:
            parts = [names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE)]
            rows = []
            for part in parts:
                rows += self._rows(f"{query} AND run IN ({', '.join('?' * len(part))})", kind, *part)
        return {row[1]: Digest(*row) for row in rows}

    def keep(self, digests: Sequence[Digest]) -> None:
        """Keeps digests in the place of older ones."""
        with self._transaction() as db:
            schema.create_digests(db)
            _replace(db, digests)

    def keep_runs(self, kept: Sequence[RunDigests]) -> None:
        """Keeps what was computed from runs."""
        with self._transaction() as db:
            schema.create_digests(db)
            for one in kept:
                _replace(db, [one.digest])
                db.executemany(_KEEP_VERIFIED, one.verified)
                db.execute("UPDATE heads SET kept = ? WHERE run = ?", (one.digest.seq, one.digest.run))

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
        return [
            VerifiedGroup(name, bool(usable), bool(bad))
            for name, usable, bad in self._rows(_GROUPS, start, start + AFTER)
        ]

    def fastest(self, groups: Sequence[str], limit: int) -> list[VerifiedRow]:
        """The fastest programs of each group."""
        return [VerifiedRow(*row) for group in groups for row in self._rows(_FASTEST, group, limit)]

    def refused(self, groups: Sequence[str]) -> set[str]:
        """The programs that are refused in one of the groups."""
        return {row[0] for group in groups for row in self._rows(_REFUSED, group)}

    def _has(self, table: str) -> bool:
        return bool(self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", table))


def _replace(db: sqlite3.Connection, digests: Sequence[Digest]) -> None:
    db.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)", digests)
