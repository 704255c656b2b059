"""The contract of run archives. A test class inherits it and says where one is (as for Optuna's storages)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hipwright.archive import Archive, Evaluated, LogEntry, Place, Proposed, check, readable
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


HERE = Path(__file__).parent

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from archive_contract import a_run, program
from hipwright import config
from hipwright.archive import Archive, LogEntry
from hipwright.errors import BadInput
who, count = int(sys.argv[3]), int(sys.argv[4])
with Archive(config.place_of(sys.argv[2])) as archive:
    try:
        archive.begin_run(a_run("shared"))
    except BadInput:
        pass  # another one was first
    for n in range(count):
        entries = [LogEntry("a", n, {"who": who}), LogEntry("b", n, {"who": who})]
        archive.append_all("shared", entries, [program(n), program(count - n)])
        print(n, flush=True)
"""


def writer(place: Place, who: int, count: int) -> subprocess.Popen[str]:
    """A process that appends to the run `shared`, and prints the number of each pair of events that is stored."""
    command = [sys.executable, "-c", WRITER, str(HERE), str(place), str(who), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


class ArchiveContract:
    """The subclass says where the archive of a test is: `place(home)`."""

    def place(self, home: Path) -> Place:
        raise NotImplementedError

    def open(self, home: Path) -> Archive:
        return Archive(self.place(home))

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

    def test_events_are_read_by_kind_and_in_parts(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            archive.append_all("r1", [LogEntry("ab"[n % 2], n) for n in range(7)])
            assert [row[2] for row in archive.event_rows("r1", kinds=["b", "c"])] == [1, 3, 5]
            assert [row[0] for row in archive.event_rows("r1", since=2, most=3)] == [2, 3, 4]
            assert [row[2] for row in archive.event_rows("r1", since=3, kinds=["a"], most=2)] == [2, 4]
            assert len(archive.event_rows("r1")) == 8 and not archive.event_rows("r1", kinds=["c"])

    def test_programs_that_are_there_are_known_among_others(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            stored = {archive.put(program(n)) for n in range(3)}
            assert archive.database.known_blobs([*stored, program(3).key, "x"]) == stored
            assert archive.database.known_blobs([]) == set()

    def test_an_archive_is_checked_in_parts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(readable, "EVENTS_AT_ONCE", 3)
        with self.open(tmp_path) as archive:
            for name in ("r1", "r2"):
                archive.begin_run(a_run(name))
                entries = [LogEntry("proposed", n, proposed(n).to_dict()) for n in range(5)]
                archive.append_all(name, [*entries, evaluated(4)], [program(n) for n in (0, 2, 3)])
            reads, rows = [], archive.database.event_rows
            monkeypatch.setattr(
                archive.database, "event_rows", lambda *a, **k: reads.append(rows(*a, **k)) or reads[-1]
            )
            found = check(archive)
            assert {(row.run, row.row) for row in found} == {(r, program(n).key) for r in ("r1", "r2") for n in (1, 4)}
            assert [len(page) for page in reads] == [3, 3, 1, 3, 3, 1]

    def test_records_are_stored_once_under_their_key(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            assert archive.put(program()) == archive.put(program()) == program().key
            assert archive.program(program().key) == program()
            with pytest.raises(BadInput, match="no program"):
                archive.program("0" * 20)
            with pytest.raises(BadInput, match="no task"):  # a program's key does not open a task
                archive.task(program().key)

    def test_runs_are_listed_in_the_order_they_were_begun(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"r{n}" for n in range(12)]
        random.Random(0).shuffle(names)
        with self.open(tmp_path) as archive:
            for name in ("AT_ONCE", "PAGE"):  # several pages, the last one full
                monkeypatch.setattr(sys.modules[type(archive.database).__module__], name, 4, raising=False)
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

    # ---------------------------------------------------------------- many writers

    def test_processes_append_to_one_run_at_once(self, tmp_path: Path) -> None:
        writers = [writer(self.place(tmp_path), who, 60) for who in (1, 2)]
        assert [one.communicate(timeout=60) and one.returncode for one in writers] == [0, 0]
        with self.open(tmp_path) as archive:
            events = archive.events("shared")[1:]
            assert [e.seq for e in events] == list(range(1, 241))
            for who in (1, 2):
                mine = [(e.kind, e.number) for e in events if e.data["who"] == who]
                assert mine == [(kind, n) for n in range(60) for kind in "ab"]  # each kept its own order
            # both events of one call are adjacent
            pairs = zip(events[::2], events[1::2], strict=True)
            assert all(a.data == b.data and a.number == b.number for a, b in pairs)
            assert archive.program(program(59).key) == program(59)

    def test_threads_share_one_handle(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            threads = [
                threading.Thread(target=lambda: [archive.append("r1", "n", i) for i in range(25)]) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [e.seq for e in archive.events("r1")] == list(range(101))

    def test_runs_are_begun_at_once_in_an_order(self, tmp_path: Path) -> None:
        failed: list[BaseException] = []

        def begin(who: int, ready: threading.Barrier) -> None:
            try:
                with self.open(tmp_path) as archive:
                    ready.wait()
                    for n in range(5):
                        archive.begin_run(a_run(f"{who}-{n}"), records=[program(n) for n in range(4)])
            except BaseException as error:
                failed.append(error)

        ready = threading.Barrier(4)
        threads = [threading.Thread(target=begin, args=(who, ready)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self.open(tmp_path) as archive:
            listed = [run.id for run in archive.runs()]
        assert failed == [] and len(listed) == 20
        for who in range(4):
            assert [name for name in listed if name.startswith(f"{who}-")] == [f"{who}-{n}" for n in range(5)]

    def test_several_may_make_a_new_archive_at_once(self, tmp_path: Path) -> None:
        """Several open a new archive at once: none may see a half-written schema."""
        refused: list[BaseException] = []

        def begin(home: Path, ready: threading.Barrier) -> None:
            ready.wait()
            try:
                with self.open(home) as archive:
                    archive.runs()
            except BaseException as error:
                refused.append(error)

        for number in range(self.new_archives):
            ready = threading.Barrier(6)
            threads = [threading.Thread(target=begin, args=(tmp_path / str(number), ready)) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert refused == []

    new_archives = 40

    # ---------------------------------------------------------------- cut off

    def test_a_killed_writer_loses_nothing_that_it_reported(self, tmp_path: Path) -> None:
        reported: dict[int, int] = {}
        for who in range(4):
            process = writer(self.place(tmp_path), who, 10_000)
            assert process.stdout is not None
            reported[who] = int(process.stdout.readline())
            time.sleep(0.02 * who)
            os.kill(process.pid, signal.SIGKILL)
            for line in process.stdout.read().split("\n"):
                reported[who] = int(line) if line.strip() else reported[who]
            process.stdout.close()
            process.wait()
        with self.open(tmp_path) as archive:
            events = archive.events("shared")
            assert [e.seq for e in events] == list(range(len(events))) and check(archive) == []
            for who, last in reported.items():
                mine = [(e.kind, e.number) for e in events[1:] if e.data["who"] == who]
                # whole pairs, each once, and at most one more than was reported
                assert mine == [(kind, n) for n in range(len(mine) // 2) for kind in "ab"]
                assert last + 1 <= len(mine) // 2 <= last + 2

    def test_a_killed_holder_leaves_no_lock(self, tmp_path: Path) -> None:
        script = (
            "import sys, time\nfrom hipwright import config\nfrom hipwright.archive import Archive\n"
            "archive = Archive(config.place_of(sys.argv[1]))\n"
            "with archive.lock('r1'):\n    print('held', flush=True)\n    time.sleep(60)\n"
        )
        with self.open(tmp_path) as archive:
            archive.begin_run(a_run())
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", script, str(self.place(tmp_path))]
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None and process.stdout.readline() == "held\n"
                assert archive.is_locked("r1")
                process.kill()
            with archive.lock("r1"):
                archive.append("r1", "note")

    def test_readers_see_whole_transactions_while_one_writes(self, tmp_path: Path) -> None:
        process = writer(self.place(tmp_path), 1, 80)
        assert process.stdout is not None
        process.stdout.readline()
        seen = 0
        with self.open(tmp_path) as archive:
            archive.refuse_writes()
            while process.poll() is None:
                events = archive.events("shared", since=1)
                assert len(events) % 2 == 0 and len(events) >= seen  # both events of a call, or none
                seen = len(events)
                assert all(archive.has(program(e.number).key) for e in events[-2:])
                process.stdout.readline()
            process.stdout.close()
            before = archive.changes()
            assert len(archive.events("shared")) == 161 and archive.changes() == before
            with pytest.raises(BadInput, match="read-only"):
                archive.append("shared", "note")
            with self.open(tmp_path) as other:
                other.append("shared", "note")
            assert archive.changes() != before
