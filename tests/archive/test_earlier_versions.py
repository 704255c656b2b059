"""Archives of earlier versions are brought up where they are used, and what such versions write is seen."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from archive_contract import program
from test_digests import SOURCE, TASK, found, search
from test_packs import keep_programs, verified
from test_postgres import schema_of

from benchmarks.archive.server import Server
from hipwright.archive import Archive, list_runs
from hipwright.archive.database import FASTEST, REFUSED, Digest
from hipwright.archive.postgres.tables import HEAD
from hipwright.archive.similar import similar
from hipwright.archive.sqlite import schema

TABLES = ("verified_INSERT_is_placed", "verified_UPDATE_is_placed")


def without_places(path: Path) -> sqlite3.Connection:
    """The file as an earlier version has it: no names of groups, no packs, blobs in one tree with their keys."""
    db = sqlite3.connect(path / "archive.sqlite")
    for trigger in TABLES:
        db.execute(f"DROP TRIGGER {trigger}")
    db.execute("DROP TABLE places")
    db.execute("DROP INDEX heads_unkept")
    db.execute("DROP TABLE packs")
    db.execute("ALTER TABLE blobs RENAME TO new")
    db.execute("CREATE TABLE blobs (key TEXT PRIMARY KEY, kind TEXT NOT NULL, data TEXT NOT NULL) WITHOUT ROWID")
    db.execute("INSERT INTO blobs SELECT * FROM new")
    db.execute("DROP TABLE new")
    for verb in ("UPDATE", "DELETE"):
        db.execute(schema.frozen("blobs", verb))
    db.commit()
    return db


def test_an_archive_of_an_earlier_version_is_brought_up_by_the_next_use(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        search(archive, "a", [0, 1])
        search(archive, "b", [2, 3], refused=3)
        known, near = list_runs(archive), similar(archive, SOURCE, targets=("gfx942",), k=3)
        keys = found(archive)
    without_places(tmp_path).close()
    with Archive(tmp_path).refuse_writes() as archive:
        assert list_runs(archive) == known and similar(archive, SOURCE, targets=("gfx942",), k=3) == near
        assert archive.database.digests.of(FASTEST) == {}
    with Archive(tmp_path) as archive:
        assert similar(archive, SOURCE, targets=("gfx942",), k=3) == near and found(archive) == keys
        assert set(archive.database.digests.of(FASTEST)) == {f"{TASK.key}/gfx942"}
        assert list_runs(archive) == known
        search(archive, "c", [1])
        assert archive.put(program(7)) and archive.program(program(7).key) == program(7)
        assert {row[0] for row in archive.blobs()} >= {program(n).key for n in (0, 1, 2, 3, 7)}


def test_a_run_that_ends_in_an_archive_of_an_earlier_version_brings_all_groups_up(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        keep_programs(archive, verified("p", 1, 2.0))
        pages = archive.database.digests.of(FASTEST)
    without_places(tmp_path).close()
    with Archive(tmp_path) as archive:
        keep_programs(archive, verified("q", 1, 2.0)._replace(place="u/gfx942"))
        assert archive.database.digests.of(FASTEST).items() > pages.items()


def test_what_another_version_keeps_of_a_group_is_seen(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        keep_programs(archive, verified("p", 1, 2.0))
        tables = archive.database.digests
        assert [row.program for row in tables.fastest(["t/gfx942"], 9)] == ["p"]
        db = sqlite3.connect(tmp_path / "archive.sqlite")
        db.execute("INSERT INTO verified VALUES ('t/gfx942', 'q', 1, 1.0, 's', '{}')")
        db.execute(f"INSERT INTO verified VALUES ('u/gfx942', 'q', {REFUSED}, 0.0, 's', '{{}}')")
        db.commit()
        assert [row.program for row in tables.fastest(["t/gfx942"], 9)] == ["q", "p"]
        assert tables.groups() == [("t/gfx942", True, False), ("u/gfx942", False, True)]
        db.execute(f"UPDATE verified SET kind = {REFUSED} WHERE place = 't/gfx942' AND program = 'q'")
        db.commit()
        db.close()
        assert [row.program for row in tables.fastest(["t/gfx942"], 9)] == ["p"]
        assert tables.groups("t")[0].refused


def test_every_blob_is_read_page_by_page_in_the_order_of_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(tmp_path) as archive:
        keys = sorted(archive.put(program(n)) for n in range(20))
        monkeypatch.setattr("hipwright.archive.sqlite.database.AT_ONCE", 4)
        assert [row[0] for row in archive.blobs()] == keys
        archive.database.connection.execute(  # type: ignore[attr-defined]
            "INSERT INTO blobs VALUES (CAST(x'ff61' AS TEXT), 'Program', '{}')"
        )
        monkeypatch.setattr("hipwright.archive.sqlite.database.AT_ONCE", 3)
        assert [row[0] for row in archive.blobs()] == [*keys, "\udcffa"]


def test_runs_that_go_on_are_found_by_an_index(tmp_path: Path) -> None:
    """A look at the heads of all runs would read a page of the disk for each hundred of them."""
    with Archive(tmp_path) as archive:
        search(archive, "a", [0])
        list_runs(archive)
        plan = archive.database.connection.execute(  # type: ignore[attr-defined]
            "EXPLAIN QUERY PLAN SELECT run FROM heads WHERE seq <> kept ORDER BY run"
        ).fetchall()
        assert "heads_unkept" in plan[0][3]


# ---------------------------------------------------------------- PostgreSQL


def test_a_migration_names_groups_and_keeps_their_fastest_programs(server: Server, tmp_path: Path) -> None:
    from hipwright.archive.postgres.opening import migrate

    url = server.url(schema_of(tmp_path))
    with Archive(url) as archive:
        search(archive, "a", [0, 1])
        search(archive, "b", [2, 3], refused=3)
        keys, pages = found(archive), archive.database.digests.of(FASTEST)
        groups = archive.database.digests.groups()
    server.psql(
        f"SET search_path = {schema_of(tmp_path)}; DROP TABLE places; DELETE FROM digests WHERE kind = '{FASTEST}';"
        "UPDATE alembic_version SET version_num = '0004'"
    )
    assert migrate(url) == ("0004", HEAD)
    with Archive(url) as archive:
        assert archive.database.digests.groups() == groups == [(f"{TASK.key}/gfx942", True, True)]
        assert archive.database.digests.of(FASTEST) == pages and found(archive) == keys


def test_more_digests_than_a_statement_has_places_for_are_packed(server: Server, tmp_path: Path) -> None:
    with Archive(server.url(schema_of(tmp_path))) as archive:
        tables = archive.database.digests
        many = [Digest("run/1", f"r{n}", 0, "{}") for n in range(30_000)]
        tables.keep(many)
        tables.put_together([Digest("packs/runs/1", "p", 1, "pack")], many)
        assert tables.of("run/1") == {} and set(tables.of("packs/runs/1")) == {"p"}
        assert archive.database.numbered_run_rows(range(70_000)) == []
