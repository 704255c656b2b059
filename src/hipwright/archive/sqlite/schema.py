"""The archive's tables, and the triggers that make its log append-only.

All data is in one SQLite file, `archive.sqlite`, so that an event and the program it names are committed together. WAL
lets readers read while a run writes. synchronous=FULL costs one fsync per event (about a millisecond against about a
second of evaluation); committed events then survive a power cut, while with NORMAL they would survive only a kill.
"""

from __future__ import annotations

import sqlite3

from hipwright.archive.database import AFTER, FASTEST, REFUSED

APPLICATION_ID = 0x68697077  # "hipw" in the file's header identifies our files
SCHEMA_VERSION = 1

GROUPS = f"""WITH RECURSIVE found(name) AS (
    SELECT MIN(place) FROM verified WHERE place >= ?1 AND place < ?2
    UNION ALL SELECT (SELECT MIN(place) FROM verified WHERE place > found.name AND place < ?2)
    FROM found WHERE found.name IS NOT NULL)
    SELECT name, EXISTS (SELECT 1 FROM verified WHERE place = name AND kind < {REFUSED}),
        EXISTS (SELECT 1 FROM verified WHERE place = name AND kind = {REFUSED}) FROM found WHERE name IS NOT NULL"""
"""The groups of programs between two names, found in `verified`: some places of the disk for each."""

TABLES = (
    """CREATE TABLE runs (
        id TEXT PRIMARY KEY, ordinal INTEGER NOT NULL UNIQUE, data TEXT NOT NULL)""",
    """CREATE TABLE events (
        run TEXT NOT NULL REFERENCES runs(id), seq INTEGER NOT NULL, kind TEXT NOT NULL, number INTEGER NOT NULL,
        data TEXT NOT NULL, clock REAL NOT NULL, cache_key TEXT, PRIMARY KEY (run, seq)) WITHOUT ROWID""",
    "CREATE INDEX events_by_cache_key ON events(cache_key) WHERE cache_key IS NOT NULL",
    "CREATE TABLE blobs (key TEXT PRIMARY KEY, kind TEXT NOT NULL, data TEXT NOT NULL)",
)
"""Files of earlier versions have blobs WITHOUT ROWID, which reads alike: with rows of several kB in its inner pages
that tree has nine levels for a million events, and finding a program reads a page of the disk for each."""

LEASES = (
    """CREATE TABLE IF NOT EXISTS leases (
        run TEXT NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
        PRIMARY KEY (run, number, attempt)) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS results (
        run TEXT NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL, seq INTEGER NOT NULL,
        PRIMARY KEY (run, number)) WITHOUT ROWID""",
)
"""Made with the first lease: an archive without one is as every version since 0.1 wrote it, and reads it."""
CLAIMS = """CREATE TABLE IF NOT EXISTS claims (
    key TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID"""
"""Made with the first claim."""

_DIGESTS = (
    """CREATE TABLE IF NOT EXISTS digests (
        kind TEXT NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (kind, run))
        WITHOUT ROWID""",
)
"""Made with the first digest, with the next ones. To have all computed again: empty digests and verified, and set
heads.kept to -2."""
_HEADS = (
    "CREATE TABLE heads (run TEXT PRIMARY KEY, seq INTEGER NOT NULL, kept INTEGER NOT NULL DEFAULT -2) WITHOUT ROWID",
    """CREATE TRIGGER runs_have_heads AFTER INSERT ON runs
        BEGIN INSERT OR IGNORE INTO heads (run, seq) VALUES (NEW.id, -1); END""",
    """CREATE TRIGGER events_move_heads AFTER INSERT ON events
        BEGIN UPDATE heads SET seq = NEW.seq WHERE run = NEW.run; END""",
    """INSERT INTO heads (run, seq)
        SELECT id, (SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = runs.id) FROM runs""",
    """CREATE TABLE verified (
        place TEXT NOT NULL, program TEXT NOT NULL, kind INTEGER NOT NULL, microseconds REAL NOT NULL,
        run TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (place, kind, microseconds, program)) WITHOUT ROWID""",
    "CREATE UNIQUE INDEX verified_programs ON verified(place, program)",
    "DELETE FROM digests WHERE kind = 'verified/1'",  # as versions before these tables kept them
)

_PLACES = (
    "CREATE INDEX heads_unkept ON heads(run) WHERE seq <> kept",
    """CREATE TABLE packs (
        kind TEXT NOT NULL, run TEXT NOT NULL, seq INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (kind, run))""",
    "CREATE TABLE places (place TEXT PRIMARY KEY, usable INTEGER NOT NULL, refused INTEGER NOT NULL) WITHOUT ROWID",
    *(
        f"""CREATE TRIGGER verified_{verb}_is_placed AFTER {verb} ON verified BEGIN
        INSERT INTO places VALUES (NEW.place,
            EXISTS (SELECT 1 FROM verified WHERE place = NEW.place AND kind < {REFUSED}),
            EXISTS (SELECT 1 FROM verified WHERE place = NEW.place AND kind = {REFUSED}))
            ON CONFLICT (place) DO UPDATE SET usable = excluded.usable, refused = excluded.refused;
        DELETE FROM packs WHERE kind = '{FASTEST}' AND run = NEW.place; END"""
        for verb in ("INSERT", "UPDATE")
    ),
    "INSERT INTO places " + GROUPS.replace("?1", "''").replace("?2", f"'{AFTER}'"),
)
"""Packs are digests with long texts, and not WITHOUT ROWID: SQLite reads the whole of such a row to compare its key.

Made with the next ones; where an earlier version made those, by the next list or search that may write."""

_FROZEN = """CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table}
    BEGIN SELECT RAISE(ABORT, 'the archive is append-only: no {verb} of {table}'); END"""
_NEXT_SEQ = """CREATE TRIGGER events_in_order BEFORE INSERT ON events
    WHEN NEW.seq <> (SELECT COALESCE(MAX(seq) + 1, 0) FROM events WHERE run = NEW.run)
    BEGIN SELECT RAISE(ABORT, 'events of a run are appended one after another'); END"""


def frozen(table: str, verb: str) -> str:
    """The statement of the trigger that refuses this change of a table. verb: UPDATE or DELETE."""
    return _FROZEN.format(table=table, verb=verb)


TRIGGERS = (
    *(frozen(table, verb) for table in ("runs", "events", "blobs") for verb in ("UPDATE", "DELETE")),
    _NEXT_SEQ,  # also prevents INSERT OR REPLACE, which is an update in effect
)


def create(connection: sqlite3.Connection) -> None:
    """Writes the schema inside the caller's transaction."""
    for statement in (*TABLES, *TRIGGERS):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def create_digests(connection: sqlite3.Connection) -> None:
    """Makes the tables of digests inside the caller's transaction, where they are missing."""
    for table, statements in (("heads", (*_DIGESTS, *_HEADS)), ("places", _PLACES)):
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is None:
            for statement in statements:
                connection.execute(statement)
