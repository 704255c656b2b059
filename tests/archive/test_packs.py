"""Digests in packs, and the fastest programs of a group in one row: the same answers from few rows, in both."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from archive_contract import a_run
from test_digests import SOURCE, no_events, search

from hipwright.archive import Archive, Finished, Place, list_runs, read_log, summary_of
from hipwright.archive.database import FASTEST, MOST_FASTEST, REFUSED, Digest, RunDigests, VerifiedRow
from hipwright.archive.digests import packs, records, runs, task_texts
from hipwright.records import Task


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs of few entries, so that a test needs few runs."""
    monkeypatch.setattr(packs, "FULL", 5)
    for module in (runs, records):
        monkeypatch.setattr(module, "LOOSE", 3)


def told(archive: Archive) -> list[Any]:
    """The list as the events tell it."""
    return [summary_of(archive, run, read_log(archive.events(run.id))) for run in archive.runs()][::-1]


def kept(archive: Archive) -> tuple[int, list[int]]:
    """(digests of runs with a row each, the entries of every pack)."""
    tables = archive.database.digests
    return len(tables.of("run/1")), sorted(pack.seq for pack in tables.of("packs/runs/1").values())


def test_digests_of_many_runs_are_put_into_packs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with Archive(place) as archive:
        for number in range(12):
            search(archive, f"r{number:02}", [number % 3])
        list_runs(archive)
        assert list_runs(archive) == told(archive) and kept(archive) == (0, [2, 5, 5])
        for number in range(12, 14):
            search(archive, f"r{number:02}", [number % 3])
            assert list_runs(archive) == told(archive)
        assert kept(archive) == (2, [2, 5, 5])
        search(archive, "r14", [1])
        list_runs(archive)
        assert list_runs(archive) == told(archive) and kept(archive) == (0, [5, 5, 5])
        known = told(archive)
    with Archive(place, create=False) as archive:
        no_events(archive, monkeypatch)
        monkeypatch.setattr(archive.database, "run_rows", lambda: pytest.fail("all runs are read"))
        numbered: list[int] = []
        whole = archive.database.numbered_run_rows
        monkeypatch.setattr(archive.database, "numbered_run_rows", lambda some: numbered.extend(some) or whole(some))
        assert list_runs(archive) == known and numbered == []


def test_a_run_in_a_pack_that_goes_on_is_listed_as_it_is(place: Place) -> None:
    with Archive(place) as archive, Archive(place) as other:
        for number in range(6):
            search(archive, f"r{number}", [number])
        list_runs(archive)
        list_runs(archive)
        assert kept(archive) == (0, [1, 5])
        with other.lock("r2"):
            other.append("r2", "resumed")
            other.append("r2", "finished", -1, Finished(reason="stopped").to_dict())
            assert list_runs(archive)[3].reason == "stopped"
        for _ in range(2):
            assert list_runs(archive) == told(archive) and list_runs(archive)[3].reason == "stopped"
        for number in range(6, 9):  # the newer digest is packed, the older one stays in a pack that is full
            search(archive, f"r{number}", [number])
        for _ in range(3):
            assert list_runs(archive) == told(archive)
        assert kept(archive)[0] == 0


def test_a_pack_of_an_interrupted_run_says_whether_it_runs(place: Place) -> None:
    with Archive(place) as archive, Archive(place) as other:
        for number in range(4):
            archive.begin_run(a_run(f"r{number}"), {"task_name": "t"})
        list_runs(archive)
        list_runs(archive)
        assert kept(archive) == (0, [4])
        with other.lock("r1"):
            assert [one.status for one in list_runs(archive)] == ["interrupted"] * 2 + ["running", "interrupted"]


def test_a_digest_that_changed_meanwhile_is_not_lost_by_packing(place: Place) -> None:
    with Archive(place) as archive:
        tables = archive.database.digests
        old, new = Digest("run/1", "a", 4, "old"), Digest("run/1", "a", 6, "new")
        tables.keep([new, Digest("run/1", "b", 2, "b")])
        tables.put_together([Digest("packs/runs/1", "p", 2, "pack")], [old, Digest("run/1", "b", 2, "b")])
        assert tables.of("run/1") == {"a": new} and set(tables.of("packs/runs/1")) == {"p"}
        tables.put_together([Digest("packs/runs/1", "p", 2, "again")], [Digest("packs/runs/1", "p", 2, "pack")])
        assert tables.of("packs/runs/1")["p"].data == "again"
        tables.put_together([], [])


@pytest.mark.parametrize("data", ["no base64", "QUJD", ""])
def test_a_damaged_pack_is_computed_again(data: str, tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        for number in range(8):
            search(archive, f"r{number}", [number])
        list_runs(archive)
        list_runs(archive)
        known = told(archive)
        archive.database.connection.execute(
            "UPDATE packs SET data = ? WHERE kind = 'packs/runs/1' AND seq = 5", (data,)
        )  # type: ignore[attr-defined]
        for _ in range(2):
            assert list_runs(archive) == known and archive.damaged == []
        assert kept(archive) == (0, [3, 5])


def test_texts_of_many_tasks_are_put_into_packs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task(name=f"t{n}", source=SOURCE + f"# {n} word{n}\n", workloads=()) for n in range(9)]
    with Archive(place) as archive:
        for task in tasks:
            archive.put(task)
        keys = [task.key for task in tasks]
        first = task_texts(archive, keys[:7]) | task_texts(archive, keys[7:])
        tables = archive.database.digests
        assert (
            sorted(pack.seq for pack in tables.of("packs/tasks/1").values()) == [2, 5] and len(tables.of("task/1")) == 2
        )
        monkeypatch.setattr(
            archive, "find_all", lambda keys, kind: dict[str, Any]() if not keys else pytest.fail("read")
        )
        assert task_texts(archive, keys) == first and list(first) == keys
        assert list(task_texts(archive, keys[3:5])) == keys[3:5]


def test_lists_and_ends_of_runs_at_once_lose_no_run(place: Place) -> None:
    failed: list[str] = []

    def work(who: int) -> None:
        with Archive(place) as mine:
            for n in range(6):
                search(mine, f"r{who}{n}", [n])
                listed = [one.id for one in list_runs(mine)]
                if f"r{who}{n}" not in listed or len(set(listed)) != len(listed):
                    failed.append(f"r{who}{n}: {listed}")

    Archive(place).close()
    workers = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    with Archive(place) as archive:
        for _ in range(2):
            assert list_runs(archive) == told(archive) and len(told(archive)) == 24
        assert failed == [] and kept(archive)[0] < 3


def test_runs_are_read_by_their_ordinals(place: Place) -> None:
    with Archive(place) as archive:
        assert archive.database.last_ordinal() == -1 and archive.runs_at([0, 1]) == {}
        for name in ("b", "a", "c"):
            archive.begin_run(a_run(name))
        assert archive.database.last_ordinal() == 2
        assert archive.runs_at([2, 0, 7]) == {0: a_run("b"), 2: a_run("c")}
        assert archive.runs_at(range(3000)) == dict(enumerate(archive.runs()))


# ---------------------------------------------------------------- the fastest programs of a group


def verified(name: str, kind: int, microseconds: float, run: str = "r") -> VerifiedRow:
    return VerifiedRow("t/gfx942", kind, microseconds, name, run, "{}")


def keep_programs(archive: Archive, *rows: VerifiedRow) -> None:
    archive.database.digests.keep_runs([RunDigests(Digest("run/1", rows[0].run, 0, "{}"), rows)])


def test_a_groups_fastest_programs_are_the_same_from_one_row(place: Place) -> None:
    rows = [verified(f"p{n:03}", min(n % 5, 2), float("inf") if n % 5 > 1 else 1000.0 - n) for n in range(200)]
    with Archive(place) as archive:
        tables = archive.database.digests
        keep_programs(archive, *rows)
        expected = sorted(rows, key=lambda row: (row.kind, row.microseconds, row.program))
        assert tables.of(FASTEST)["t/gfx942"].seq == MOST_FASTEST
        for limit in (1, MOST_FASTEST, MOST_FASTEST + 1, 500):
            assert tables.fastest(["t/gfx942"], limit) == expected[:limit]
        refused = expected[0]
        keep_programs(archive, refused._replace(kind=REFUSED, microseconds=0.0))
        assert tables.fastest(["t/gfx942"], 3) == expected[1:4] and tables.refused(["t/gfx942"]) == {refused.program}
        assert tables.groups() == [("t/gfx942", True, True)] and tables.groups("u") == []
        tables.keep([Digest(FASTEST, "t/gfx942", 9, "damaged")])
        assert tables.fastest(["t/gfx942"], 3) == expected[1:4]


def test_a_group_whose_every_program_is_refused_offers_none(place: Place) -> None:
    with Archive(place) as archive:
        keep_programs(archive, verified("p", 1, 2.0))
        keep_programs(archive, verified("p", REFUSED, 0.0))
        tables = archive.database.digests
        assert tables.groups() == [("t/gfx942", False, True)] and tables.fastest(["t/gfx942"], 9) == []


def test_writers_of_one_group_at_once_leave_its_fastest_programs(place: Place) -> None:
    def write(who: int) -> None:
        with Archive(place) as mine:
            for n in range(12):
                keep_programs(mine, verified(f"p{who}{n:02}", 1, float(100 * n + who), run=f"r{who}"))

    Archive(place).close()
    writers = [threading.Thread(target=write, args=(who,)) for who in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    with Archive(place) as archive:
        tables = archive.database.digests
        assert tables.of(FASTEST)["t/gfx942"].seq == 48
        assert [row.microseconds for row in tables.fastest(["t/gfx942"], 99)] == sorted(
            100.0 * n + who for n in range(12) for who in range(4)
        )
