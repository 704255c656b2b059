"""The contract of run archives. A test class inherits it and defines how to open one (as for Optuna's storages)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hipwright.archive import Archive, Evaluated, LogEntry, Proposed
from hipwright.errors import BadInput
from hipwright.records import Evaluation, Expansion, Program, Run


def a_run(name: str = "r1", **more: object) -> Run:
    fields = {"task": "t", "targets": ("gfx942",), "budget": 4, "policy": "islands", "seed": 1, **more}
    return Run(id=name, **fields)  # type: ignore[arg-type]


def program(n: int = 0) -> Program:
    return Program(text=f"# program {n}\n")


def evaluation(n: int = 0, **more: object) -> Evaluation:
    fields = {"status": "pass", "score": 10.0 - n, "score_kind": "estimate", "coverage": 1.0, **more}
    return Evaluation(task="t", program=program(n).key, **fields)  # type: ignore[arg-type]


def proposed(n: int, *, parent: int | None = None, round: int = 0) -> Proposed:
    parents = () if parent is None else (program(parent).key,)
    return Proposed(
        expansion=Expansion(number=n, operator="mutate", parents=parents), round=round, program=program(n).key
    )


def evaluated(n: int, cache_key: str | None = None, **more: object) -> LogEntry:
    return LogEntry("evaluated", n, Evaluated(evaluation=evaluation(n, **more)).to_dict(), cache_key)


class ArchiveContract:
    """The subclass defines `open(home)`."""

    def open(self, home: Path) -> Archive:
        raise NotImplementedError

    def test_events_come_back_as_they_were_appended(self, tmp_path: Path) -> None:
        data = {"text": "é\n\u202e", "number": 1.5, "list": [1, None, True], "nested": {"a": {}}}
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            first = archive.append("r1", "note", 3, data)
        with self.open(tmp_path) as archive:
            events = archive.events("r1")
        assert [e.seq for e in events] == [0, 1] and events[1] == first
        assert events[0].kind == "run_started" and events[1].data == data and events[1].number == 3

    def test_sequences_of_runs_are_independent(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            for name in ("a", "b"):
                archive.begin_run(a_run(name))
            for turn in range(6):
                archive.append("ab"[turn % 2], "note", turn)
            for name in ("a", "b"):
                assert [e.seq for e in archive.events(name)] == [0, 1, 2, 3]
            assert [e.number for e in archive.events("b")] == [-1, 1, 3, 5]

    def test_append_all_is_all_or_nothing(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            with pytest.raises(TypeError):
                archive.append_all("r1", [LogEntry("one"), LogEntry("two", 0, {"x": object()})], [program()])
            assert len(archive.events("r1")) == 1 and not archive.has(program().key)
            archive.append_all("r1", [LogEntry("one"), LogEntry("two")], [program()])
            assert len(archive.events("r1")) == 3 and archive.program(program().key) == program()

    def test_records_are_stored_once_under_their_key(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            assert archive.put(program()) == archive.put(program()) == program().key
            assert archive.program(program().key) == program()
            with pytest.raises(BadInput, match="no program"):
                archive.program("0" * 20)
            with pytest.raises(BadInput, match="no task"):  # a program's key does not open a task
                archive.task(program().key)

    def test_runs_are_listed_in_the_order_they_were_begun(self, tmp_path: Path) -> None:
        names = [f"r{n}" for n in range(12)]
        random.Random(0).shuffle(names)
        with self.open(tmp_path) as archive:
            for name in names:
                archive.begin_run(a_run(name))
            assert [r.id for r in archive.runs()] == names
            assert archive.run("latest") == a_run(names[-1])

    def test_runs_are_found_by_name_prefix_or_latest(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            with pytest.raises(BadInput, match="no runs"):
                archive.run("latest")
            for name in ("2026-aa", "2026-ab", "2026-a"):
                archive.begin_run(a_run(name))
            assert archive.run("2026-aa").id == "2026-aa" and archive.run("2026-ab").id == "2026-ab"
            assert archive.run("2026-a").id == "2026-a"  # an exact name wins over being a prefix
            assert archive.run("latest").id == "2026-a"
            for wrong, why in (("2026", "names 3 runs"), ("x", "no run"), ("", "no run")):
                with pytest.raises(BadInput, match=why):
                    archive.run(wrong)

    def test_a_run_is_begun_once_and_must_exist(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            with pytest.raises(BadInput, match="already a run"):
                archive.begin_run(a_run())
            with pytest.raises(BadInput, match="no run"):
                archive.append("r2", "note")
            assert archive.events("r2") == []

    def test_evaluations_are_reused_by_cache_key_only(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            archive.append_all("r1", [evaluated(0, "k0"), evaluated(1, None)])
            assert archive.evaluation("k0") == evaluation(0)
            assert archive.evaluation("k1") is None

    def test_two_handles_see_each_other(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as one, self.open(tmp_path) as two:
            one.begin_run(a_run())
            two.append("r1", "note", 1)
            one.append("r1", "note", 2)
            assert [e.number for e in two.events("r1")] == [-1, 1, 2]

    def test_locks_exclude_and_are_released(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as one, self.open(tmp_path) as two:
            one.begin_run(a_run())
            assert not two.is_locked("r1")
            with one.lock("r1"):
                assert two.is_locked("r1") and not two.is_locked("other")
                with pytest.raises(BadInput, match="another process"), two.lock("r1"):
                    pass
            with two.lock("r1"):
                assert one.is_locked("r1")
