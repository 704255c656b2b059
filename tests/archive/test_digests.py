"""Digests: lists and searches tell what the events say, before and after digests are kept, and read no events then."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import msgspec
import pytest
from archive_contract import a_run, evaluated, program, proposed
from test_damage import fill, spoil

from hipwright.archive import Archive, Confirmed, Evaluated, Finished, LogEntry, Place, list_runs, read_log, summary_of
from hipwright.archive.similar import known_for, similar, tasks_of_source
from hipwright.records import Task

SOURCE = "class Model:\n    def forward(self, x):\n        return torch.relu(x @ x)\n"
TASK = Task(name="t", source=SOURCE, workloads=())


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
        assert len(list_runs(archive)) == 3 and archive.database.digests.of("run/1") == {}


def test_a_damaged_run_is_named_each_time(tmp_path: Path) -> None:
    fill(tmp_path)
    spoil(tmp_path, "events", "UPDATE events SET data = '{' WHERE run = 'r1' AND seq = 2")
    for _ in range(2):
        with Archive(tmp_path) as archive:
            assert len(list_runs(archive)) == 3 and [row.run for row in archive.damaged] == ["r1"]
            assert set(archive.database.digests.of("run/1")) == {"r0", "r2"}


def test_a_damaged_digest_is_computed_again(tmp_path: Path) -> None:
    fill(tmp_path)
    with Archive(tmp_path) as archive:
        told = list_runs(archive)
        archive.database.connection.execute("UPDATE digests SET data = '{' || data WHERE run = 'r1'")  # type: ignore[attr-defined]
        assert list_runs(archive) == told and archive.damaged == []


# ---------------------------------------------------------------- what is read does not grow with the archive


def test_a_search_and_a_resume_read_no_other_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(place) as archive:
        for number in range(3):
            search(archive, f"r{number}", [number])
        first = similar(archive, SOURCE, targets=("gfx942",), k=3)
    with Archive(place, create=False) as archive:
        no_events(archive, monkeypatch)
        monkeypatch.setattr(archive.database, "run_rows", lambda: pytest.fail("all runs are read"))
        assert similar(archive, SOURCE, targets=("gfx942",), k=3) == first
        assert [archive.run(name).id for name in ("r1", "latest")] == ["r1", "r2"]
        assert tasks_of_source(archive, SOURCE) == [TASK.key] and tasks_of_source(archive, "x = 1\n") == []


def test_a_run_in_progress_counts_with_what_it_has(place: Place) -> None:
    with Archive(place) as archive, Archive(place) as other:
        search(archive, "a", [0, 1])
        assert found(archive) == [program(1).key, program(0).key]
        with other.lock("b"):
            other.begin_run(a_run("b", task=TASK.key), {"task_name": "t"}, [TASK])
            for number in (2, 3):
                other.append_all("b", [LogEntry("proposed", number, proposed(number).to_dict())], [program(number)])
                other.append_all("b", [evaluated(number)])
                assert found(archive) == [program(n).key for n in range(number, -1, -1)]
                assert archive.database.digests.unkept() == ["b"]
        assert len(found(archive)) == 4 and archive.database.digests.unkept() == []


def test_a_refusal_counts_where_the_refusing_run_does(place: Place) -> None:
    with Archive(place) as archive:
        for name, targets in (("a", ("gfx942", "cpu")), ("b", ("gfx942", "gfx1100")), ("c", ("gfx90a",))):
            archive.begin_run(a_run(name, task=TASK.key, targets=targets), {"task_name": "t"}, [TASK])
            for number in (0, 1):
                entries = [LogEntry("proposed", number, proposed(number).to_dict()), evaluated(number)]
                archive.append_all(name, entries, [program(number)])
        both = [program(1).key, program(0).key]
        for kept in (False, True):
            if kept:
                list_runs(archive)
            assert found(archive) == both
        refusal = Confirmed(
            program=program(1).key, passed=False, evaluation=Evaluated.from_dict(dict(evaluated(1).data)).evaluation
        )
        archive.append("b", "confirmed", 1, refusal.to_dict())
        assert found(archive) == both[1:]
        for targets, expected in ((("gfx90a",), both), (("gfx1100",), both[1:]), (("cpu",), both[1:])):
            assert [one.program for one in known_for(archive, TASK.key, targets, 9)] == expected
        archive.append("a", "confirmed", 0, msgspec.structs.replace(refusal, program=program(0).key).to_dict())
        assert found(archive) == [] and similar(archive, SOURCE, targets=("gfx942",), k=3) == []
        assert [one.program for one in similar(archive, SOURCE, targets=("gfx90a",), k=3)] == both[:1]


def test_kept_programs_are_those_that_the_events_tell(tmp_path: Path) -> None:
    rng = random.Random(5)
    with Archive(tmp_path) as archive:
        for number in range(8):
            chosen = rng.sample(range(12), 5)
            refused = rng.choice([None, None, chosen[0]])
            search(archive, f"r{number}", chosen, refused=refused)
    with Archive(tmp_path, create=False).refuse_writes() as archive:
        told = found(archive), similar(archive, SOURCE, targets=("gfx942",), k=9)
        assert len(told[0]) >= 5 and archive.database.digests.groups() == []
    with Archive(tmp_path, create=False) as archive:
        for _ in range(2):
            assert (found(archive), similar(archive, SOURCE, targets=("gfx942",), k=9)) == told
        assert archive.database.digests.unkept() == []


def test_all_is_computed_again_where_that_is_asked(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        search(archive, "a", [0, 1])
        told = found(archive)
    database = sqlite3.connect(tmp_path / "archive.sqlite")
    database.executescript("UPDATE heads SET kept = -2; DELETE FROM digests; DELETE FROM verified")  # docs/archive.md
    database.close()
    with Archive(tmp_path) as archive:
        assert archive.database.digests.unkept() == ["a"] and found(archive) == told != []
        assert archive.database.digests.unkept() == []


def test_what_another_version_appends_is_seen(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        search(archive, "a", [0])
        list_runs(archive)
    database = sqlite3.connect(tmp_path / "archive.sqlite")  # as a version that knows nothing of digests
    database.execute("INSERT INTO events VALUES ('a', 4, 'note', -1, '{}', 1.0, NULL)")
    database.execute("INSERT INTO runs SELECT 'b', 1, replace(data, '\"a\"', '\"b\"') FROM runs")
    database.commit()
    database.close()
    with Archive(tmp_path) as archive:
        assert archive.database.digests.unkept() == ["a", "b"]
        assert archive.database.digests.last_seqs() == {"a": 4, "b": -1}


def test_a_program_that_is_lost_is_not_offered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(place) as archive:
        search(archive, "a", [0, 1])
        assert [one.program for one in similar(archive, SOURCE, targets=("gfx942",), k=1)] == [program(1).key]
        whole = archive.find_all
        lost = lambda keys, kind: whole([key for key in keys if key != program(1).key], kind)  # noqa: E731
        monkeypatch.setattr(archive, "find_all", lost)
        assert found(archive) == [program(0).key]
        assert [one.program for one in similar(archive, SOURCE, targets=("gfx942",), k=1)] == [program(0).key]
