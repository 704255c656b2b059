"""The call logs in memory, in a file and in an archive, also after a process was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hipwright.archive import Archive, LogEntry, export, read_log
from hipwright.errors import BadInput, InfrastructureError
from hipwright.llm.archive_call_log import ArchiveCallLog
from hipwright.llm.call_log import MemoryCallLog, RecordedCallLog
from hipwright.llm.file_call_log import FileCallLog
from hipwright.records import Run
from tests.llm.calls.call_log_contract import CallLogContract, answer, request, reserved

RUN = Run(id="r1", task="t", targets=("gfx942",), budget=4, policy="islands", seed=1)


def archive_calls(home: Path, run: str = "r1") -> ArchiveCallLog:
    archive = Archive(home)
    if run not in [r.id for r in archive.runs()]:
        archive.begin_run(Run(**{**RUN.to_dict(), "id": run, "targets": RUN.targets}))
    return ArchiveCallLog(archive, run)


class TestMemoryCalls(CallLogContract):
    keeps = False

    def open(self, home: Path) -> MemoryCallLog:
        return MemoryCallLog()


class TestFileCalls(CallLogContract):
    def open(self, home: Path) -> FileCallLog:
        return FileCallLog(home / "deep" / "calls.jsonl")


class TestArchiveCalls(CallLogContract):
    @pytest.fixture(autouse=True)
    def opened(self, request: pytest.FixtureRequest) -> None:
        self.archives: list[Archive] = []
        request.addfinalizer(lambda: [archive.close() for archive in self.archives])

    def open(self, home: Path) -> ArchiveCallLog:
        log = archive_calls(home)
        self.archives.append(log._archive)
        return log


# ---------------------------------------------------------------- killed

CHILD = """
import os, signal, sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from tests.llm.calls.call_log_contract import answer, request, reserved
from tests.llm.calls.test_call_logs import {opener}
log = {opener}(Path({home!r}))
log.reserve(reserved(request(0)))
log.settle(answer(request(0)))
log.reserve(reserved(request(1), cost=0.5))
log.reserve(reserved(request(1), cost=0.75))
print("reserved", flush=True)
time.sleep(60)
"""


def file_calls(home: Path) -> FileCallLog:
    return FileCallLog(home / "calls.jsonl")


@pytest.mark.parametrize("opener", ["file_calls", "archive_calls"])
def test_a_call_under_way_when_the_process_is_killed_is_lost(tmp_path: Path, opener: str) -> None:
    root = Path(__file__).parents[2]
    code = CHILD.format(path=[str(root), str(root / "src")], opener=opener, home=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reserved\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    log: RecordedCallLog = globals()[opener](tmp_path)
    assert log.find(request(0).key) == answer(request(0))
    assert [(lost.request, lost.cost_usd) for lost in log.lost()] == [(request(1), 0.5), (request(1), 0.75)]
    log.settle(answer(request(1)))  # the answer to the last attempt, had it come
    assert [lost.cost_usd for lost in log.lost()] == [0.5]
    if isinstance(log, ArchiveCallLog):
        log._archive.close()


BUSY = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from tests.llm.calls.call_log_contract import answer, request, reserved
from tests.llm.calls.test_call_logs import {opener}
log = {opener}(Path({home!r}))
for n in range(100000):
    log.reserve(reserved(request(n)))
    print("reserved", n, flush=True)
    if n % 2:
        log.settle(answer(request(n)))
        print("settled", n, flush=True)
"""


@pytest.mark.parametrize("opener", ["file_calls", "archive_calls"])
@pytest.mark.parametrize("lines", [1, 20, 77])
def test_what_returned_before_a_kill_is_there_after_it(tmp_path: Path, opener: str, lines: int) -> None:
    root = Path(__file__).parents[2]
    code = BUSY.format(path=[str(root), str(root / "src")], opener=opener, home=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline().split() for _ in range(lines)]
        child.kill()
        said += [line.split() for line in child.stdout.readlines() if line.endswith("\n")]
    log: RecordedCallLog = globals()[opener](tmp_path)
    seen = {r.request.number for r in log.reservations()}
    assert {int(number) for verb, number in said if verb == "reserved"} <= seen
    assert all(log.find(request(int(number)).key) for verb, number in said if verb == "settled")
    assert len(said) >= lines and len(seen) <= len(said) + 1  # at most the one that was being written
    if isinstance(log, ArchiveCallLog):
        log._archive.close()


# ---------------------------------------------------------------- the file


def written(path: Path, count: int = 3) -> list[bytes]:
    with FileCallLog(path) as log:
        for n in range(count):
            log.reserve(reserved(request(n)))
    return path.read_bytes().splitlines(keepends=True)


def test_every_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """After any torn last line, earlier lines stay and more can be written."""
    lines = written(tmp_path / "whole")
    before = b"".join(lines[:2])
    torn = [lines[2][:cut] for cut in range(0, len(lines[2]), 7)] + [lines[2][:-1], b"\0" * 512, b"\0" * 511 + b"\n"]
    for number, tail in enumerate(torn):
        path = tmp_path / f"torn{number}"
        path.write_bytes(before + tail)
        with FileCallLog(path) as log:
            assert [lost.request.number for lost in log.lost()] == [0, 1], tail
            log.reserve(reserved(request(9)))
        with FileCallLog(path) as log:
            assert [lost.request.number for lost in log.lost()] == [0, 1, 9], tail


@pytest.mark.parametrize("damage", [b"", b"{\n", b"[]\n", b'"x"\n', b"\0\0\0\n", b'{"kind":"call_reserved"}\n'])
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "calls.jsonl"
    lines = written(path)
    path.write_bytes(lines[0] + (damage or lines[1][:-20] + b"\n") + lines[2])
    with pytest.raises(InfrastructureError, match=r"calls\.jsonl:2"):
        FileCallLog(path)
    assert path.read_bytes().startswith(lines[0]), "a damaged file is left as it is"


def test_a_call_that_lacks_a_field_is_named(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    lines = written(path)
    plain = json.loads(lines[1])
    del plain["data"]["tokens"]
    path.write_bytes(lines[0] + json.dumps(plain).encode() + b"\n" + lines[2])
    with pytest.raises(InfrastructureError, match=r"calls\.jsonl:2.*tokens"):
        FileCallLog(path)


def test_two_holders_of_a_file_see_each_other(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    with FileCallLog(path) as one, FileCallLog(path) as two:
        one.reserve(reserved(request(0)))
        assert two.lost() == one.lost() == [reserved(request(0))]
        two.settle(answer(request(0)))
        assert one.find(request(0).key) == answer(request(0)) and one.lost() == []
        one.reserve(reserved(request(1)))
        two.reserve(reserved(request(2)))
        assert [lost.request.number for lost in one.lost()] == [1, 2]
        assert one.lost() == two.lost()


def test_a_line_is_on_the_disk_before_the_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    with FileCallLog(path) as log:
        synced: list[int] = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(os.fstat(descriptor).st_size)
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        log.reserve(reserved(request(0)))
        assert synced == [path.stat().st_size] and synced[0] > 0


def test_a_line_that_may_not_be_on_the_disk_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with FileCallLog(tmp_path / "calls.jsonl") as log:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(InfrastructureError, match="Input/output"):
                log.reserve(reserved(request(0)))
        assert log.lost() == []
        log.reserve(reserved(request(1)))
        assert [lost.request.number for lost in log.lost()] == [1]


def test_a_full_disk_is_said_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "calls.jsonl"
    with FileCallLog(path) as log:
        log.reserve(reserved(request(0)))
        real, room = os.write, [50]

        def write(descriptor: int, data: bytes) -> int:
            if not room[0]:
                raise OSError(28, "No space left on device")
            done = real(descriptor, data[: room[0]])
            room[0] -= done
            return done

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(InfrastructureError, match="No space"):
                log.reserve(reserved(request(1)))
        assert [lost.request.number for lost in log.lost()] == [0]
        log.reserve(reserved(request(2)))
    with FileCallLog(path) as log:
        assert [lost.request.number for lost in log.lost()] == [0, 2]


def test_a_place_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="log of calls"):
        FileCallLog(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="log of calls"):
        FileCallLog(tmp_path / "file" / "calls.jsonl")


# ---------------------------------------------------------------- the archive


def test_a_damaged_call_of_an_archive_is_named(tmp_path: Path) -> None:
    with Archive(tmp_path) as archive:
        archive.begin_run(RUN)
        archive.append_all("r1", [LogEntry("call_settled", 0, {"role": "x", "answer": {"text": 3}})])
        with pytest.raises(InfrastructureError, match="event 1 of run r1"):
            ArchiveCallLog(archive, "r1")
        with pytest.raises(InfrastructureError, match="event 1 of run r1"):
            read_log(archive.events("r1"))


def test_settled_calls_are_lines_of_the_canonical_export(tmp_path: Path) -> None:
    """Lists each call once by number, role and index, without cost, seconds and attempts, in any order of arrival."""
    calls = [request(2), request(-1, role="planner"), request(2, 1), request(2, 0, role="judge"), request(1)]
    lost = request(0, text="never answered")
    exports = []
    for name, order, cost in (("r1", calls, 0.5), ("r2", calls[::-1], 0.25)):
        log = archive_calls(tmp_path, name)
        with log._archive as archive:
            if name == "r2":
                log.reserve(reserved(lost))
            for asked in order:
                for _ in range(1 if name == "r1" else 2):  # an attempt that was lost shows nowhere
                    log.reserve(reserved(asked))
                log.settle(answer(asked, f"{asked.number} /tmp/a/b {asked.role}", cost, seconds=cost, attempts=2))
            log.reserve(reserved(request(1)))
            log.settle(answer(request(1), "a second answer", 1.0))
            exports.append(export(archive, name, canonical=True))
            assert list(read_log(archive.events(name)).called) == [asked.key for asked in order]
    assert exports[0] == exports[1]
    lines = [json.loads(line) for line in exports[0].splitlines()][1:]
    assert [(line["number"], line["role"], line["index"]) for line in lines] == [
        (-1, "planner", 0),
        (1, "translator", 0),
        (2, "judge", 0),
        (2, "translator", 0),
        (2, "translator", 1),
    ]
    assert lines[1] == {
        "kind": "called",
        "number": 1,
        "role": "translator",
        "index": 0,
        "model": "openai:gpt-4o",
        "request": request(1).key,
        "text": "1 /tmp/a/b translator",
        "finish": "stop",
        "usage": {"input_tokens": 7, "output_tokens": 3, "cached_tokens": 2},
    }
