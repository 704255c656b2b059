"""The SQLite archive: the contract, concurrent processes, foreign, too new and damaged files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from archive_contract import ArchiveContract, a_run, program

from hipwright.archive import Archive, schema
from hipwright.errors import BadInput, HipwrightError, InfrastructureError


class TestSqliteArchive(ArchiveContract):
    def open(self, home: Path) -> Archive:
        return Archive(home)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from archive_contract import a_run, program
from hipwright.archive import Archive, LogEntry
from hipwright.errors import BadInput
who = int(sys.argv[3])
with Archive(Path(sys.argv[2])) as archive:
    try:
        archive.begin_run(a_run("shared"))
    except BadInput:
        pass  # the other one was first
    for n in range(60):
        archive.append_all("shared", [LogEntry("a", n, {"who": who}), LogEntry("b", n, {"who": who})], [program(n)])
"""


def test_processes_append_to_one_run_at_once(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", WRITER, here, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(who)]) for who in (1, 2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    with Archive(tmp_path) as archive:
        events = archive.events("shared")[1:]
        assert [e.seq for e in events] == list(range(1, 241))
        for who in (1, 2):
            mine = [(e.kind, e.number) for e in events if e.data["who"] == who]
            assert mine == [(kind, n) for n in range(60) for kind in "ab"]  # each kept its own order
        # both events of one call are adjacent
        assert all(a.data == b.data and a.number == b.number for a, b in zip(events[::2], events[1::2], strict=True))
        assert archive.program(program(59).key) == program(59)


def test_threads_share_one_handle(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(a_run())
        threads = [threading.Thread(target=lambda: [archive.append("r1", "n", i) for i in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [e.seq for e in archive.events("r1")] == list(range(101))


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
        with sqlite3.connect(archive.path) as foreign, pytest.raises(sqlite3.IntegrityError):
            foreign.execute(statement)
        foreign.close()
        assert archive.events("r1") == before and archive.program(program().key) == program()


def test_committed_events_are_synced_to_disk(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        assert archive._db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert archive._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def one_line(raised: pytest.ExceptionInfo[HipwrightError]) -> str:
    message = raised.value.message
    assert "\n" not in message and raised.value.hint
    return message


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive._db.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
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
        archive._db.execute("DROP TRIGGER blobs_no_UPDATE")
        archive._db.execute("UPDATE blobs SET data = replace(data, 'program 0', 'program 1')")
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
            patch.setattr(archive, "_insert", interrupted)
            archive.append_all("r1", [], [program()])
        assert not archive.has(program().key)
        archive.append("r1", "note")  # and the handle still works
        assert len(archive.events("r1")) == 2


def test_several_may_make_a_new_archive_at_once(tmp_path: Path) -> None:
    """Several processes open a new archive at once: none may see a half-written schema."""
    refused: list[BaseException] = []

    def begin(home: Path, ready: threading.Barrier) -> None:
        ready.wait()
        try:
            with Archive(home) as archive:
                archive.runs()
        except BaseException as error:
            refused.append(error)

    for number in range(40):
        ready = threading.Barrier(6)
        threads = [threading.Thread(target=begin, args=(tmp_path / str(number), ready)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert refused == []
