"""The benchmark's quick filling leaves the archive that searches leave, so what it measures is what they would meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_postgres import schema_of

from benchmarks.archive.bulk import fill
from benchmarks.archive.filling import EVENTS, Made, made_runs
from benchmarks.archive.server import Server
from hipwright.archive import Archive, Evaluated, Finished, LogEntry, Place, Proposed, keep_digests, read_log
from hipwright.archive.sqlite.database import SqliteDatabase
from hipwright.records import Decision, Program, Record, Task

RECORDS: dict[str, type[Record]] = {
    "proposed": Proposed,
    "evaluated": Evaluated,
    "decided": Decision,
    "finished": Finished,
}
RUNS = 2


@pytest.fixture(params=["sqlite", "postgres"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, Place]:
    if request.param == "sqlite":
        return tmp_path / "quick", tmp_path / "written"
    server: Server = request.getfixturevalue("server")
    schema = schema_of(tmp_path)
    return server.url(f"{schema}_q"), server.url(f"{schema}_w")


def written(archive: Archive, made: Made) -> None:
    """Stores a run as a search does, from records."""
    task = Task.from_json(made.task.data)
    started = json.loads(made.rows[0].data)
    archive.begin_run(made.run, {name: value for name, value in started.items() if name != "run"}, [task])
    programs = {blob.key: Program.from_json(blob.data) for blob in made.programs}
    entries = []
    for row in made.rows[1:]:
        data = RECORDS[row.kind].from_dict(json.loads(row.data)).to_dict()
        entries.append(LogEntry(row.kind, row.number, data, row.cache_key))
    archive.append_all(made.run.id, entries, list(programs.values()))
    keep_digests(archive, made.run, read_log(archive.events(made.run.id)))


def content(archive: Archive) -> dict[str, Any]:
    """All that is stored, without clocks."""
    database = archive.database
    groups, events = database.digests.groups(), [database.stored_events(run.id, 0, 9999) for run in archive.runs()]
    digests = {run: json.loads(kept.data) for run, kept in database.digests.of("run/1").items()}
    for digest in digests.values():
        del digest["summary"]["started"]
    return {
        "runs": list(database.run_rows()),
        "events": [row._replace(clock=0.0) for rows in events for row in rows],
        "blobs": list(database.blob_rows()),
        "digests": digests,
        "tasks": database.digests.of("task/1"),
        "groups": groups,
        "verified": database.digests.fastest([group.place for group in groups], 9999),
        "seqs": database.digests.last_seqs(),
        "unkept": database.digests.unkept(),
    }


def tables(archive: Archive) -> list[tuple[str, str]]:
    database = archive.database
    assert isinstance(database, SqliteDatabase)
    return sorted(database.connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def test_a_filled_archive_is_one_that_searches_wrote(places: tuple[Place, Place]) -> None:
    quick, normal = places
    fill(quick, made_runs(RUNS * EVENTS, tasks=1))
    with Archive(quick) as filled, Archive(normal) as archive:
        for made in made_runs(RUNS * EVENTS, tasks=1):
            written(archive, made)
        found = content(filled)
        assert found == content(archive)
        assert (
            len(found["events"]) == RUNS * EVENTS
            and len(found["verified"]) == RUNS * 128
            and not found["unkept"]
            and found["tasks"]
        )
        assert filled.append(filled.latest_runs(1)[0].id, "note").seq == EVENTS
        if isinstance(normal, Path):
            assert tables(filled) == tables(archive)
            assert filled.database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)  # type: ignore[attr-defined]
