"""One damaged row is named and skipped: other runs are listed, shown, resumed and written as before."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from archive_contract import a_run, evaluated, program, proposed

from hipwright.archive import Archive, Finished, LogEntry, check, compare, export, list_runs, read_log, show
from hipwright.archive.similar import known_for
from hipwright.archive.sqlite import schema
from hipwright.errors import InfrastructureError
from hipwright.records import Program, Run

COLUMNS = {"runs": ("id", "data"), "events": ("kind", "number", "data", "clock"), "blobs": ("kind", "data")}


def fill(home: Path, runs: int = 3, trials: int = 3) -> None:
    """Runs r0, r1, ... of `trials` programs each; all share program 0."""
    with Archive(home) as archive:
        for number in range(runs):
            run = f"r{number}"
            archive.begin_run(a_run(run), {"task_name": "t"})
            for n in range(trials):
                key = 0 if n == 0 else 10 * number + n
                entry = LogEntry("proposed", n, proposed(key).to_dict() | {"expansion": {"number": n, "operator": "x"}})
                archive.append_all(run, [entry, evaluated(n, cache_key=f"c{number}{n}")], [program(key)])
            archive.append(run, "finished", -1, Finished(reason="budget", best=program(0).key, number=0).to_dict())


def spoil(home: Path, table: str, statement: str, *values: object) -> None:
    """Changes a row as a damaged disk would: past the triggers."""
    db = sqlite3.connect(home / "archive.sqlite")
    with db:
        db.execute(f"DROP TRIGGER {table}_no_UPDATE")
        db.execute(statement, values)
        db.execute(schema.frozen(table, "UPDATE"))
    db.close()


def damage(home: Path, rng: random.Random) -> str:
    """Overwrites some bytes of a random column of a random row; returns where."""
    table = rng.choice(sorted(COLUMNS))
    column = rng.choice(COLUMNS[table])
    db = sqlite3.connect(home / "archive.sqlite")
    db.text_factory = bytes
    keys = {"runs": "ordinal", "events": "run || '/' || seq", "blobs": "key"}[table]
    rows = db.execute(f"SELECT {keys}, CAST({column} AS BLOB) FROM {table}").fetchall()
    db.close()
    key, old = rng.choice(rows)
    new = bytearray(old or b"0")
    for _ in range(rng.randint(1, 8)):
        new[rng.randrange(len(new))] = rng.randrange(256)
    spoil(home, table, f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {keys} = ?", bytes(new), text(key))
    return f"{table} {key!r} {column}"


def text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def use(home: Path) -> list[str]:
    """Every query, and a new run. Returns the ids of the runs that are listed."""
    with Archive(home) as archive:
        listed = list_runs(archive)
        for one in listed:
            show(archive, one.id)
            compare(archive, one.id, listed[0].id)
        known_for(archive, "t", ("gfx942",), 9)
        archive.evaluation("c11")
        found = check(archive)
        assert all(row.why and row.text for row in found)
        archive.begin_run(a_run("new"), records=[program(0)])
        archive.append_all("new", [LogEntry("proposed", 0, proposed(0).to_dict()), evaluated(0)], [program(0)])
        assert archive.program(program(0).key) == program(0), "storing a record again mends a damaged copy"
        assert show(archive, "new").summary.best == program(0).key
        return [one.id for one in listed]


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_in_a_random_row_block_nothing_else(seed: int, tmp_path: Path) -> None:
    fill(tmp_path)
    rng = random.Random(seed)
    where = damage(tmp_path, rng)
    listed = use(tmp_path)
    assert len({"r0", "r1", "r2"} & set(listed)) >= 2, where


SPOILED = {
    "no JSON": ("events", "UPDATE events SET data = '{' WHERE run = 'r1' AND seq = 2"),
    "no UTF-8": ("events", "UPDATE events SET data = CAST(x'7b22ff227d' AS TEXT) WHERE run = 'r1' AND seq = 2"),
    "no object": ("events", "UPDATE events SET data = '[1]' WHERE run = 'r1' AND seq = 2"),
    "a newer status": (
        "events",
        "UPDATE events SET data = replace(data, '\"pass\"', '\"sublime\"') WHERE run = 'r1' AND seq = 2",
    ),
    "no proposal": ("events", "UPDATE events SET data = '{}' WHERE run = 'r1' AND seq = 1"),
    "no number": ("events", "UPDATE events SET number = 'x' WHERE run = 'r1' AND seq = 2"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_damaged_event_is_named_and_the_run_itself_does_not_resume(case: str, tmp_path: Path) -> None:
    fill(tmp_path)
    spoil(tmp_path, *SPOILED[case])
    with Archive(tmp_path) as archive:
        runs = {one.id: one for one in list_runs(archive)}
        assert set(runs) == {"r0", "r1", "r2"} and runs["r0"].best_number == 0 and runs["r2"].evaluations == 3
        (row,) = archive.damaged
        assert (row.table, row.run) == ("events", "r1") and row.row in row.text and row.why
        assert len(show(archive, "r1").trials) >= 2
        with pytest.raises(InfrastructureError, match="r1") as raised:
            read_log(archive.events("r1"))
        assert "\n" not in raised.value.message
        with pytest.raises(InfrastructureError):
            export(archive, "r1", canonical=True)
        assert export(archive, "r0") and read_log(archive.events("r2")).finished is not None
        assert check(archive) == [row]


def test_a_damaged_run_row_is_read_from_the_runs_first_event(tmp_path: Path) -> None:
    fill(tmp_path)
    spoil(tmp_path, "runs", "UPDATE runs SET data = 'nonsense' WHERE id = 'r1'")
    with Archive(tmp_path) as archive:
        assert [run.id for run in archive.runs()] == ["r0", "r1", "r2"] and archive.run("r1") == a_run("r1")
        assert [row.run for row in archive.damaged] == ["r1"]
    spoil(tmp_path, "events", "UPDATE events SET data = 'nonsense' WHERE run = 'r1' AND seq = 0")
    with Archive(tmp_path) as archive:
        assert [run.id for run in archive.runs()] == ["r0", "r2"]
        with pytest.raises(InfrastructureError, match="run r1"):
            archive.run("r1")
        assert {row.table for row in check(archive)} == {"runs", "events"}


def test_a_missing_or_damaged_program_leaves_the_run_readable(tmp_path: Path) -> None:
    fill(tmp_path)
    key = program(0).key
    spoil(tmp_path, "blobs", "UPDATE blobs SET data = replace(data, 'program 0', 'program 7') WHERE key = ?", key)
    with Archive(tmp_path) as archive:
        detail = show(archive, "r1")
        assert detail.program is None and detail.best is not None and detail.summary.best == key
        assert [row.row for row in archive.damaged] == [key]
        assert key not in [known.program for known in known_for(archive, "t", ("gfx942",), 9)]
        with pytest.raises(InfrastructureError, match="does not match"):
            archive.program(key)
        archive.put(program(0))
        assert archive.program(key) == program(0)
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            archive.database.connection.execute("UPDATE blobs SET data = ''")
        archive.database.connection.execute("DROP TRIGGER blobs_no_DELETE")
        archive.database.connection.execute("DELETE FROM blobs")
        assert show(archive, "r1").program is None and archive.find(key, Program) is None


def test_a_damaged_evaluation_is_not_reused(tmp_path: Path) -> None:
    fill(tmp_path)
    with Archive(tmp_path) as archive:
        assert archive.evaluation("c11") is not None
    spoil(tmp_path, "events", "UPDATE events SET data = 'x' WHERE cache_key = 'c11'")
    with Archive(tmp_path) as archive:
        assert archive.evaluation("c11") is None and archive.damaged[0].run == "r1"
        assert archive.evaluation("c12") is not None


def test_an_undamaged_archive_has_no_damaged_rows(tmp_path: Path) -> None:
    fill(tmp_path)
    with Archive(tmp_path) as archive:
        assert check(archive) == [] and [one.status for one in list_runs(archive)] == ["finished"] * 3
        assert isinstance(archive.runs()[0], Run)
