"""The digests of an archive in PostgreSQL, and the tables by which they are found without reading what they are of.

`heads` has the last event of every run, which the appends of this version keep (database.py); `kept` is the last event
of which digests are kept. `verified` has the fastest programs of every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, select, tuple_, update
from sqlalchemy import text as sql
from sqlalchemy.dialects.postgresql import insert

from hipwright.archive.database import (
    AFTER,
    FASTEST,
    MOST_FASTEST,
    REFUSED,
    Digest,
    RunDigests,
    VerifiedGroup,
    VerifiedRow,
    page_of,
    read_page,
)
from hipwright.archive.postgres.session import DatabaseSession
from hipwright.archive.postgres.tables import DIGESTS, HEADS, PLACES, VERIFIED

_PLACED = sql(
    f"""UPDATE places SET usable = EXISTS (SELECT 1 FROM verified WHERE place = places.place AND kind < {REFUSED}),
    refused = EXISTS (SELECT 1 FROM verified WHERE place = places.place AND kind = {REFUSED})
    WHERE place = ANY(:places)"""
)
_REMOVE = sql(
    """DELETE FROM digests AS d
    USING unnest(CAST(:kinds AS TEXT[]), CAST(:runs AS TEXT[]), CAST(:seqs AS BIGINT[])) AS old(kind, run, seq)
    WHERE d.kind = old.kind AND d.run = old.run AND d.seq = old.seq"""
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
                _keep_verified(db, rows)
            for digest in sorted(one.digest for one in kept):
                db.execute(update(HEADS).where(HEADS.c.run == digest.run).values(kept=digest.seq))

        self._session.write(work)

    def put_together(self, packs: Sequence[Digest], replaced: Sequence[Digest]) -> None:
        """Keeps packs in the place of digests."""

        def work(db: Connection) -> None:
            columns = zip(*(one[:3] for one in sorted(replaced)), strict=True)
            if replaced:
                db.execute(_REMOVE, dict(zip(("kinds", "runs", "seqs"), map(list, columns), strict=True)))
            if packs:
                _replace(db, packs)

        self._session.write(work)

    def renew(self) -> None:
        """The tables are those of this version, which opening checks."""

    def keep_pages(self) -> None:
        """Keeps the fastest programs of every group together, as an earlier version did not."""
        for group in self.groups():
            self._session.write(partial(_keep_page, place=group.place))

    def last_seqs(self) -> dict[str, int]:
        """The seq of every run's last event."""
        return dict(self._rows(select(HEADS.c.run, HEADS.c.seq)))

    def unkept(self) -> list[str]:
        """The runs of whose last event no digests are kept."""
        rows = self._rows(select(HEADS.c.run).where(HEADS.c.seq != HEADS.c.kept).order_by(HEADS.c.run))
        return [row[0] for row in rows]

    def groups(self, start: str = "") -> list[VerifiedGroup]:
        """The groups of programs."""
        between = (PLACES.c.place >= start) & (PLACES.c.place < start + AFTER)
        return [VerifiedGroup(*row) for row in self._rows(select(PLACES).where(between).order_by(PLACES.c.place))]

    def fastest(self, groups: Sequence[str], limit: int) -> list[VerifiedRow]:
        """The fastest programs of each group."""
        pages = self.of(FASTEST, groups)
        found = {group: read_page(pages.get(group), limit) for group in groups}
        lacking = [group for group in groups if found[group] is None]
        others = self._session.read(lambda db: _fastest(db, lacking, limit)) if lacking else {}
        return [row for group in groups for row in found[group] or others.get(group, [])]

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


def _keep_verified(db: Connection, rows: Sequence[VerifiedRow]) -> None:
    """Keeps programs, and what is kept of their groups. The groups' rows are locked first."""
    places = sorted({row.place for row in rows})
    named = insert(PLACES).on_conflict_do_update(index_elements=[PLACES.c.place], set_={"refused": PLACES.c.refused})
    db.execute(named, [{"place": place, "usable": False, "refused": False} for place in places])
    db.execute(_keeping_verified(), [row._asdict() for row in rows])
    db.execute(_PLACED, {"places": places})
    _keep_pages(db, places)


def _keep_pages(db: Connection, places: Sequence[str]) -> None:
    """Keeps the fastest programs of groups together, inside the transaction that has locked the groups."""
    found = _fastest(db, places, MOST_FASTEST)
    _replace(db, [page_of(place, found.get(place, [])) for place in places])


def _keep_page(db: Connection, place: str) -> None:
    db.execute(select(PLACES.c.place).where(PLACES.c.place == place).with_for_update())
    _keep_pages(db, [place])


def _fastest(db: Connection, groups: Sequence[str], limit: int) -> dict[str, list[VerifiedRow]]:
    found: dict[str, list[VerifiedRow]] = {}
    for row in db.execute(_FASTEST, {"places": list(groups), "most": limit}):
        found.setdefault(row[0], []).append(VerifiedRow(*row))
    return found


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
