"""The SQLite archive: the contract; foreign, too new and damaged files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from archive_contract import a_run, program
from lease_contract import WholeContract

from hipwright.archive import Archive, Place
from hipwright.archive.sqlite import schema
from hipwright.errors import BadInput, HipwrightError, InfrastructureError


class TestSqliteArchive(WholeContract):
    def place(self, home: Path) -> Place:
        return home


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET number = 5",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events VALUES ('r1', 0, 'x', 0, '{}', 0, NULL)",
        "INSERT INTO events VALUES ('r1', 7, 'x', 0, '{}', 0, NULL)",
        "UPDATE runs SET data = ''",
        "DELETE FROM runs",
        "UPDATE blobs SET data = ''",
        "DELETE FROM blobs",
    ],
)
def test_nothing_is_changed_or_removed(tmp_path: Path, statement: str) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run(), records=[program()])
        before = archive.events("r1")
        with sqlite3.connect(archive.database.path) as foreign, pytest.raises(sqlite3.IntegrityError):
            foreign.execute(statement)
        foreign.close()
        assert archive.events("r1") == before and archive.program(program().key) == program()


def test_committed_events_are_synced_to_disk(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        assert archive.database.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert archive.database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def one_line(raised: pytest.ExceptionInfo[HipwrightError]) -> str:
    message = raised.value.message
    assert "\n" not in message and raised.value.hint
    return message


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.database.connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    with pytest.raises(BadInput) as raised:
        Archive(tmp_path)
    assert "newer hipwright" in one_line(raised) and "upgrade" in raised.value.hint


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "archive.sqlite") as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = (tmp_path / "archive.sqlite").read_bytes()
    with pytest.raises(BadInput) as raised:
        Archive(tmp_path)
    assert "another program's" in one_line(raised)
    assert (tmp_path / "archive.sqlite").read_bytes() == before


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "archive.sqlite").write_bytes(b"not a database at all, just text\n" * 200)
    with pytest.raises(InfrastructureError) as raised:
        Archive(tmp_path)
    assert "damaged" in one_line(raised) and ".recover" in raised.value.hint


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_file_gives_one_line(tmp_path: Path, share: float) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run())
        for n in range(200):
            archive.append("r1", "note", n, {"text": "x" * 500})
    file = tmp_path / "archive.sqlite"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InfrastructureError) as raised, Archive(tmp_path) as archive:
        archive.events("r1")
    assert "damaged" in one_line(raised)


def test_a_changed_record_is_noticed(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run(), records=[program()])
        archive.database.connection.execute("DROP TRIGGER blobs_no_UPDATE")
        archive.database.connection.execute("UPDATE blobs SET data = replace(data, 'program 0', 'program 1')")
        with pytest.raises(InfrastructureError) as raised:
            archive.program(program().key)
    assert "does not match" in one_line(raised)


def test_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(BadInput) as raised:
        Archive(tmp_path / "home")
    assert "archive's folder" in one_line(raised)


def test_reading_where_there_is_none_creates_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no archive"):
        Archive(tmp_path / "home", create=False)
    assert not (tmp_path / "home").exists()


def test_an_interrupted_transaction_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run())

        def interrupted(*args: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(archive.database, "_insert", interrupted)
            archive.append_all("r1", [], [program()])
        assert not archive.has(program().key)
        archive.append("r1", "note")  # and the handle still works
        assert len(archive.events("r1")) == 2
