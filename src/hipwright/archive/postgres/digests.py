"""The digests of an archive in PostgreSQL, and the tables by which they are found without reading what they are of.

`heads` has the last event of every run, which the appends of this version keep (database.py); `kept` is the last event
of which digests are kept. `verified` has the fastest programs of every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, select, tuple_, update
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from hipwright.archive.database import AFTER, REFUSED, Digest, RunDigests, VerifiedGroup, VerifiedRow
from hipwright.archive.postgres.session import DatabaseSession
from hipwright.archive.postgres.tables import DIGESTS, HEADS, VERIFIED

_GROUPS = sql(
    f"""WITH RECURSIVE found(name) AS (
    SELECT MIN(place) FROM verified WHERE place >= :start AND place < :end
    UNION ALL SELECT (SELECT MIN(place) FROM verified WHERE place > found.name AND place < :end)
    FROM found WHERE found.name IS NOT NULL)
    SELECT name, EXISTS (SELECT 1 FROM verified WHERE place = name AND kind < {REFUSED}),
        EXISTS (SELECT 1 FROM verified WHERE place = name AND kind = {REFUSED}) FROM found WHERE name IS NOT NULL"""
)
_FASTEST = sql(
    f"""SELECT v.* FROM unnest(CAST(:places AS TEXT[])) WITH ORDINALITY AS asked(name, number) CROSS JOIN LATERAL (
    SELECT place, kind, microseconds, program, run, data FROM verified WHERE place = asked.name AND kind < {REFUSED}
    ORDER BY kind, microseconds, program LIMIT :most) AS v ORDER BY asked.number, v.kind, v.microseconds, v.program"""
)


class PostgresDigests:
    """See `DigestTables`."""

    def __init__(self, session: DatabaseSession) -> None:
        self._session = session

    def of(self, kind: str, names: Sequence[str] | None = None) -> dict[str, Digest]:
        """The digests of a kind that are kept, by name."""
        query = select(DIGESTS).where(DIGESTS.c.kind == kind)
        query = query if names is None else query.where(DIGESTS.c.run.in_(names))
        return {row[1]: Digest(*row) for row in self._rows(query)}

    def keep(self, digests: Sequence[Digest]) -> None:
        """Keeps digests in the place of older ones."""
        self._session.write(lambda db: _replace(db, digests))

    def keep_runs(self, kept: Sequence[RunDigests]) -> None:
        """Keeps what was computed from runs."""

        def work(db: Connection) -> None:
            _replace(db, [one.digest for one in kept])
            rows = sorted((row for one in kept for row in one.verified), key=lambda row: (row.place, row.program))
            if rows:
                db.execute(_keeping_verified(), [row._asdict() for row in rows])
            for digest in sorted(one.digest for one in kept):
                db.execute(update(HEADS).where(HEADS.c.run == digest.run).values(kept=digest.seq))

        self._session.write(work)

    def last_seqs(self) -> dict[str, int]:
        """The seq of every run's last event."""
        return dict(self._rows(select(HEADS.c.run, HEADS.c.seq)))

    def unkept(self) -> list[str]:
        """The runs of whose last event no digests are kept."""
        rows = self._rows(select(HEADS.c.run).where(HEADS.c.seq != HEADS.c.kept).order_by(HEADS.c.run))
        return [row[0] for row in rows]

    def groups(self, start: str = "") -> list[VerifiedGroup]:
        """The groups of programs."""
        asked = {"start": start, "end": start + AFTER}
        return self._session.read(lambda db: [VerifiedGroup(*row) for row in db.execute(_GROUPS, asked)])

    def fastest(self, groups: Sequence[str], limit: int) -> list[VerifiedRow]:
        """The fastest programs of each group."""
        asked = {"places": list(groups), "most": limit}
        return self._session.read(lambda db: [VerifiedRow(*row) for row in db.execute(_FASTEST, asked)])

    def refused(self, groups: Sequence[str]) -> set[str]:
        """The programs that are refused in one of the groups."""
        there = VERIFIED.c.place.in_(groups)
        return {row[0] for row in self._rows(select(VERIFIED.c.program).where(there, VERIFIED.c.kind == REFUSED))}

    def _rows(self, query: Select[Any]) -> list[tuple[Any, ...]]:
        return self._session.read(lambda db: [tuple(row) for row in db.execute(query)])


def move_head(db: Connection, run: str, seq: int) -> None:
    """Notes the last event of a run, inside the transaction that appends it."""
    db.execute(update(HEADS).where(HEADS.c.run == run).values(seq=seq))


def _replace(db: Connection, digests: Sequence[Digest]) -> None:
    new = insert(DIGESTS)
    newer = new.on_conflict_do_update(
        index_elements=[DIGESTS.c.kind, DIGESTS.c.run], set_={"seq": new.excluded.seq, "data": new.excluded.data}
    )
    db.execute(newer, [digest._asdict() for digest in sorted(digests)])  # in one order: two keepers never deadlock


def _keeping_verified() -> Any:
    new, old = insert(VERIFIED), VERIFIED.c
    faster = tuple_(new.excluded.kind, new.excluded.microseconds, new.excluded.run) < tuple_(
        old.kind, old.microseconds, old.run
    )
    names = ("kind", "microseconds", "run", "data")
    return new.on_conflict_do_update(
        index_elements=[old.place, old.program],
        set_={name: new.excluded[name] for name in names},
        where=(old.kind < REFUSED) & ((new.excluded.kind == REFUSED) | faster),
    )
