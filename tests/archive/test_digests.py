"""Digests: lists and searches tell what the events say, before and after digests are kept, and read no events then."""

from __future__ import annotations

from pathlib import Path

import pytest
from archive_contract import a_run, evaluated, program, proposed
from test_damage import fill, spoil
from test_postgres import schema_of

from benchmarks.archive.server import Server
from hipwright.archive import Archive, Confirmed, Evaluated, Finished, LogEntry, Place, list_runs, read_log, summary_of
from hipwright.archive.similar import known_for, similar
from hipwright.records import Task

SOURCE = "class Model:\n    def forward(self, x):\n        return torch.relu(x @ x)\n"
TASK = Task(name="t", source=SOURCE, workloads=())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return tmp_path / "archive"
    server: Server = request.getfixturevalue("server")
    return server.url(schema_of(tmp_path))


def search(archive: Archive, name: str, programs: list[int], *, refused: int | None = None) -> None:
    """A run of TASK that finds these programs and ends."""
    archive.begin_run(a_run(name, task=TASK.key), {"task_name": "t"}, [TASK])
    for n in programs:
        archive.append_all(name, [LogEntry("proposed", n, proposed(n).to_dict()), evaluated(n)], [program(n)])
    if refused is not None:
        found = Evaluated.from_dict(dict(evaluated(refused).data)).evaluation
        confirmed = Confirmed(program=program(refused).key, passed=False, evaluation=found)
        archive.append(name, "confirmed", refused, confirmed.to_dict())
    best = Finished(reason="budget", best=program(programs[-1]).key, number=programs[-1])
    archive.append(name, "finished", -1, best.to_dict())


def found(archive: Archive) -> list[str]:
    return [known.program for known in known_for(archive, TASK.key, ("gfx942",), 9)]


def no_events(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("events are read")

    monkeypatch.setattr(archive.database, "event_rows", refuse)


def test_a_list_is_what_the_events_say_and_reads_none_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(place) as archive:
        for number in range(5):
            search(archive, f"r{number}", [number, number + 1])
        told = [summary_of(archive, run, read_log(archive.events(run.id))) for run in archive.runs()][::-1]
        assert list_runs(archive) == told
    with Archive(place, create=False) as archive:
        no_events(archive, monkeypatch)
        assert list_runs(archive) == told


def test_a_run_that_goes_on_is_read_again(place: Place) -> None:
    with Archive(place) as archive, Archive(place) as other:
        archive.begin_run(a_run("r"), {"task_name": "t"})
        assert list_runs(archive)[0].status == "interrupted" and list_runs(other)[0].evaluations == 0
        with other.lock("r"):
            assert list_runs(archive)[0].status == "running"
            other.append_all("r", [LogEntry("proposed", 0, proposed(0).to_dict()), evaluated(0)], [program(0)])
            assert list_runs(archive)[0].evaluations == 1
        assert list_runs(archive)[0].status == "interrupted"
        other.append("r", "finished", -1, Finished(reason="budget").to_dict())
        assert list_runs(archive)[0].status == "finished"


def test_similar_kernels_are_the_same_with_digests_and_without(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(place) as archive:
        search(archive, "a", [0, 1, 2])
        search(archive, "b", [2, 3], refused=3)
        keys = [program(n).key for n in (2, 1, 0)]  # program 3 is the fastest, and was refused
        assert found(archive) == keys
        first = similar(archive, SOURCE, targets=("gfx942",), k=3)
        assert first
    with Archive(place, create=False) as archive:
        no_events(archive, monkeypatch)
        assert found(archive) == keys and similar(archive, SOURCE, targets=("gfx942",), k=3) == first


def test_a_task_whose_every_program_was_refused_has_none(place: Place) -> None:
    with Archive(place) as archive:
        search(archive, "a", [1], refused=1)
        assert found(archive) == [] and similar(archive, SOURCE, targets=("gfx942",), k=3) == []
        search(archive, "b", [2])
        assert found(archive) == [program(2).key]


def test_one_that_only_reads_keeps_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    with Archive(tmp_path).refuse_writes() as archive:
        assert len(list_runs(archive)) == 3 and archive.database.digests("run/1") == {}


def test_a_damaged_run_is_named_each_time(tmp_path: Path) -> None:
    fill(tmp_path)
    spoil(tmp_path, "events", "UPDATE events SET data = '{' WHERE run = 'r1' AND seq = 2")
    for _ in range(2):
        with Archive(tmp_path) as archive:
            assert len(list_runs(archive)) == 3 and [row.run for row in archive.damaged] == ["r1"]
            assert set(archive.database.digests("run/1")) == {"r0", "r2"}


def test_a_damaged_digest_is_computed_again(tmp_path: Path) -> None:
    fill(tmp_path)
    with Archive(tmp_path) as archive:
        told = list_runs(archive)
        archive.database.connection.execute("UPDATE digests SET data = '{' || data WHERE run = 'r1'")  # type: ignore[attr-defined]
        assert list_runs(archive) == told and archive.damaged == []
