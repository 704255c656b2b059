"""Copies between the databases and back: nothing is lost or changed, and a second copy adds what came since."""

from __future__ import annotations

import gzip
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from archive_contract import a_run, evaluated, program, proposed
from test_archive_export import fill

from hipwright.archive import Archive, LogEntry, Place, check, copy, export
from hipwright.archive.copying import EVENTS_AT_ONCE
from hipwright.errors import BadInput
from tests.cli import cli_tools

OLD = Path(__file__).parent / "version_0_1"


def whole(archive: Archive) -> dict[str, Any]:
    """Everything that an archive holds, as stored."""
    runs = list(archive.database.run_rows())
    return {
        "runs": runs,
        "events": {name: archive.database.stored_events(name, 0, 2**62) for name, _ in runs},
        "leases": {name: archive.database.lease_rows(name) for name, _ in runs},
        "blobs": [tuple(row) for row in archive.blobs()],
        "exports": [export(archive, name, canonical=canonical) for name, _ in runs for canonical in (False, True)],
    }


def filled(home: Path) -> Archive:
    archive = Archive(home)
    for number, name in enumerate(("b", "a", "c")):
        fill(archive, name, random.Random(number), junk=True)
    archive.begin_run(a_run("text"), {"text": "é\n\u202e\x00 \\u0000"}, [program(9)])
    archive.append_all("text", [LogEntry("proposed", 0, proposed(0).to_dict()), evaluated(0, "key")], [program(0)])
    archive.begin_run(a_run("long"))
    archive.append_all("long", [LogEntry("note", n) for n in range(EVENTS_AT_ONCE + 3)])
    for number in (7, 8):
        lease = archive.lease("text", number, "someone", 0.0)
        assert lease is not None and archive.lease("text", number, "another", 60.0) is not None
        if number == 7:
            archive.deliver(lease, [evaluated(7)], [program(7)])
    return archive


def test_there_and_back_is_the_same(place: Place, tmp_path: Path) -> None:
    with filled(tmp_path / "source") as source, Archive(place) as other, Archive(tmp_path / "back") as back:
        done = copy(source, other)
        assert (done.runs, done.unchanged, done.damaged) == (5, 0, ())
        before = whole(source)
        assert done.events == sum(map(len, before["events"].values())) and done.blobs == len(before["blobs"])
        assert whole(other) == before and check(other) == []
        assert other.evaluation("key") == source.evaluation("key")
        copy(other, back)
        assert whole(back) == before


def test_a_second_copy_adds_what_came_since(place: Place, tmp_path: Path) -> None:
    with filled(tmp_path / "source") as source, Archive(place) as other:
        copy(source, other)
        again = copy(source, other)
        assert (again.unchanged, again.events, again.blobs) == (5, 0, 0)
        source.append("a", "note", 1)
        source.begin_run(a_run("new"), records=[program(77)])
        done = copy(source, other)
        assert (done.runs, done.continued, done.unchanged, done.events, done.blobs) == (1, 1, 4, 2, 1)
        assert whole(other) == whole(source)


def test_another_run_of_the_same_name_is_left_alone(place: Place, tmp_path: Path) -> None:
    with filled(tmp_path / "source") as source, Archive(place) as other:
        other.begin_run(a_run("a", seed=77))
        before = other.events("a")
        with pytest.raises(BadInput, match="run a is another one") as raised:
            copy(source, other)
        assert "\n" not in raised.value.message and raised.value.hint
        assert other.events("a") == before


def test_a_run_that_the_target_has_more_of_is_another_one(place: Place, tmp_path: Path) -> None:
    with filled(tmp_path / "source") as source, Archive(place) as other:
        copy(source, other)
        other.append("a", "note", 5)
        with pytest.raises(BadInput, match="differs"):
            copy(source, other)


def test_damaged_runs_are_named_and_left_out(place: Place, tmp_path: Path) -> None:
    filled(tmp_path / "source").close()
    db = sqlite3.connect(tmp_path / "source" / "archive.sqlite")
    for name in ("events_no_UPDATE", "events_no_DELETE", "blobs_no_UPDATE"):
        db.execute(f"DROP TRIGGER {name}")
    db.execute("UPDATE events SET data = CAST(x'7b22ff227d' AS TEXT) WHERE run = 'a' AND seq = 2")
    db.execute("DELETE FROM events WHERE run = 'c' AND seq = 4")
    db.execute("UPDATE blobs SET data = replace(data, 'program 9', 'program 8')")
    db.commit()
    db.close()
    with Archive(tmp_path / "source") as source, Archive(place) as other:
        done = copy(source, other)
        assert sorted((row.table, row.run) for row in done.damaged) == [("blobs", ""), ("events", "a"), ("events", "c")]
        assert [run.id for run in other.runs()] == ["b", "text", "long"] and check(other) == []
        assert {(row.table, row.run) for row in check(source)} == {("blobs", ""), ("events", "a"), ("events", "c")}


def test_an_archive_of_version_0_1_is_copied(place: Place, tmp_path: Path) -> None:
    before = gzip.decompress((OLD / "archive.sqlite.gz").read_bytes())
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "archive.sqlite").write_bytes(before)
    with Archive(tmp_path / "old", create=False).refuse_writes() as source, Archive(place) as other:
        done = copy(source, other)
        assert done.runs and not done.damaged and whole(other) == whole(source)
    assert (tmp_path / "old" / "archive.sqlite").read_bytes() == before


def test_the_commands(place: Place, tmp_path: Path) -> None:
    filled(tmp_path / "source").close()
    run = cli_tools.hipwright
    done = run(tmp_path / "home", "archive", "copy", tmp_path / "source", place, "--json")
    assert done.returncode == 0, done.stderr
    assert cli_tools.one_object(done.stdout)["runs"] == 5
    assert "0 events" in run(tmp_path / "home", "archive", "copy", tmp_path / "source", place).stdout
    assert "none is missing" in run(tmp_path / "home", "archive", "check", place).stdout
    found = cli_tools.one_object(run(tmp_path / "home", "archive", "migrate", place, "--json").stdout)
    assert found["before"] == found["after"]
    itself = run(tmp_path / "home", "archive", "copy", place, place)
    assert itself.returncode == 2 and "into itself" in itself.stderr
    none = run(tmp_path / "home", "archive", "check", tmp_path / "none")
    assert none.returncode == 2 and "no archive" in none.stderr
