"""Fills an archive with made-up runs quickly: the rows that searches leave, without waiting for each of them.

tests/archive/test_filling.py compares it with the archive's own calls. Only for an archive that is being
made: a crash loses it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from benchmarks.archive.filling import Made
from hipwright.archive import Archive, Outline, Place
from hipwright.archive.database import RunDigests
from hipwright.archive.digests import digests_of, pack_runs, task_texts
from hipwright.archive.outline import add_row
from hipwright.archive.place import address_of, is_url
from hipwright.archive.sqlite import schema
from hipwright.archive.sqlite.database import SqliteDatabase
from hipwright.records import Program

SETTINGS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_wal_size": "4GB"}
"""Of a PostgreSQL server while it is filled."""
_RUNS_AT_ONCE, _CACHE_KIB = 20, 1_500_000


def fill(place: Place, runs: Iterable[Made], told: Callable[[int], None] = lambda runs: None) -> None:
    """Makes the archive at `place` of these runs, with their digests. told: is given the number of runs so far."""
    with Archive(place) as archive:
        (_fill_postgres if is_url(place) else _fill_sqlite)(archive, str(place), _pages(runs), told)


def _fill_sqlite(archive: Archive, place: str, pages: Iterable[list[Made]], told: Callable[[int], None]) -> None:
    assert isinstance(archive.database, SqliteDatabase)
    db, stored = archive.database.connection, 0
    for setting in ("journal_mode = OFF", "synchronous = OFF", "foreign_keys = OFF", f"cache_size = -{_CACHE_KIB}"):
        db.execute(f"PRAGMA {setting}")
    schema.create_digests(db)
    insertions = "type = 'trigger' AND sql LIKE '% INSERT ON %' AND tbl_name IN ('runs', 'events', 'blobs')"
    refused = db.execute(f"SELECT name, sql FROM sqlite_master WHERE {insertions}").fetchall()
    for name, _ in refused:
        db.execute(f"DROP TRIGGER {name}")
    for page in pages:
        db.execute("BEGIN")
        numbered = [(made.run.id, stored + at, made.run.to_json()) for at, made in enumerate(page)]
        _insert(db, "runs", numbered)
        _insert(db, "heads", [(made.run.id, made.rows[-1].seq, -2) for made in page])
        _insert(db, "events", ((made.run.id, *row) for made in page for row in made.rows))
        db.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", {made.task for made in page})
        _insert(db, "blobs", sorted(blob for made in page for blob in made.programs))
        db.execute("COMMIT")
        archive.database.digests.keep_runs([kept_digests(archive, made) for made in page])
        _end(archive, page)
        stored += len(page)
        told(stored)
    for _, statement in refused:
        db.execute(statement)
    db.execute("PRAGMA journal_mode = WAL")


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    following = iter(rows)
    if (first := next(following, None)) is not None:
        statement = f"INSERT INTO {table} VALUES ({', '.join('?' * len(first))})"
        db.execute(statement, first)
        db.executemany(statement, following)


def _fill_postgres(archive: Archive, place: str, pages: Iterable[list[Made]], told: Callable[[int], None]) -> None:
    import psycopg

    from hipwright.archive.postgres.database import PostgresDatabase

    assert isinstance(archive.database, PostgresDatabase)
    address = address_of(place)
    tasks: set[str] = set()
    where = {"host": address.host, "user": address.user, "dbname": address.database}
    with psycopg.connect(**where, autocommit=True, options=f"-csearch_path={address.schema}") as db:
        db.execute("SET session_replication_role = replica")  # without triggers: the rows are in order
        cursor, stored = db.cursor(), 0
        for page in pages:
            new = {made.task for made in page if made.task.key not in tasks}
            tasks |= {task.key for task in new}
            kept = [kept_digests(archive, made) for made in page]
            with db.transaction():
                numbered = [(made.run.id, stored + at, made.run.to_json()) for at, made in enumerate(page)]
                _copy(cursor, "runs (id, ordinal, data)", numbered)
                _copy(cursor, "heads (run, seq, kept)", [(made.run.id, *[made.rows[-1].seq] * 2) for made in page])
                _copy(cursor, "events", ((made.run.id, *row) for made in page for row in made.rows))
                _copy(cursor, "blobs", sorted([*new, *(blob for made in page for blob in made.programs)]))
                _copy(cursor, "digests", [one.digest for one in kept])
                verified = (row for one in kept for row in one.verified)
                _copy(cursor, "verified (place, kind, microseconds, program, run, data)", verified)
            _end(archive, page)
            stored += len(page)
            told(stored)
        db.execute("INSERT INTO places SELECT place, bool_or(kind < 9), bool_or(kind = 9) FROM verified GROUP BY place")
        archive.database.digests.keep_pages()
        db.execute("VACUUM ANALYZE")  # as the server does by itself sooner or later
        db.execute("CHECKPOINT")


def _end(archive: Archive, page: list[Made]) -> None:
    """What searches do when their runs end, after they kept their digests."""
    pack_runs(archive)
    task_texts(archive, sorted({made.run.task for made in page}))


def _copy(cursor: Any, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with cursor.copy(f"COPY {table} FROM STDIN") as copying:
        for row in rows:
            copying.write_row(row)


def kept_digests(archive: Archive, made: Made) -> RunDigests:
    """What a search keeps of its run when it ends."""
    outline, texts = Outline(), {blob.key: blob.data for blob in made.programs}
    for row in made.rows:
        add_row(outline, made.run.id, (row.seq, row.kind, row.number, row.data.encode(), row.clock))
    outline.log.seq = made.rows[-1].seq
    return digests_of(archive, made.run, outline.log, lambda keys: {key: Program.from_json(texts[key]) for key in keys})


def _pages(runs: Iterable[Made]) -> Iterator[list[Made]]:
    following = iter(runs)
    while page := list(islice(following, _RUNS_AT_ONCE)):
        yield page
