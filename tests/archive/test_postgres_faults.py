"""Connections that are cut at the worst moment, and servers that stop: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_contract import a_run, evaluated, program, writer
from cutting_proxy import CuttingProxy, cutting_proxy
from test_postgres import schema_of

from benchmarks.archive.server import Server
from hipwright.archive import Archive, LogEntry, check, export
from hipwright.errors import BadInput, InfrastructureError


@pytest.fixture
def proxy(server: Server) -> Iterator[CuttingProxy]:
    with (
        tempfile.TemporaryDirectory(prefix="hw-cut-") as folder,  # a socket's path is short
        cutting_proxy(Path(folder) / "p", server.folder) as found,
    ):
        yield found


@pytest.fixture
def url(server: Server, tmp_path: Path) -> str:
    return server.url(schema_of(tmp_path))


def through(proxy: CuttingProxy, url: str, server: Server) -> str:
    return url.replace(str(server.folder), str(Path(proxy._listening.getsockname()).parent))


@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_is_cut_off_at_its_commit_is_stored_once(proxy: CuttingProxy, server: Server, url: str, cut: str) -> None:
    with Archive(url) as direct, Archive(through(proxy, url, server)) as archive:
        proxy.cut = cut  # type: ignore[assignment]
        archive.begin_run(a_run())
        lease = archive.lease("r1", 3, "me", 60.0)
        assert lease is not None
        for n in range(5):
            proxy.cut = cut  # type: ignore[assignment]
            stored = archive.append_all("r1", [LogEntry("a", n), LogEntry("b", n)], [program(n)])
            assert direct.events("r1")[-2:] == stored
        proxy.cut = cut  # type: ignore[assignment]
        result = archive.deliver(lease, [evaluated(3)])
        proxy.cut = cut  # type: ignore[assignment]
        archive.put(program(99))
        assert proxy.cuts == 8 and proxy.cut is None
        events = direct.events("r1")
        assert [e.seq for e in events] == list(range(12)) and events[-1:] == result
        assert [(e.kind, e.number) for e in events[1:-1]] == [(kind, n) for n in range(5) for kind in "ab"]
        assert direct.program(program(99).key) == program(99) and check(direct) == []


def test_equal_events_that_follow_each_other_are_all_stored(proxy: CuttingProxy, server: Server, url: str) -> None:
    with Archive(url) as direct, Archive(through(proxy, url, server)) as archive:
        archive.begin_run(a_run())
        for n in range(6):
            proxy.cut = "after" if n % 2 else None
            archive.append("r1", "same", 1, {"x": 1})
        assert len(direct.events("r1")) == 7


def test_a_lock_is_taken_again_with_the_connection(proxy: CuttingProxy, server: Server, url: str) -> None:
    with Archive(url) as other, Archive(through(proxy, url, server)) as archive:
        archive.begin_run(a_run())
        with archive.lock("r1"):
            for n in range(3):
                proxy.drop()
                archive.append("r1", "note", n)
                assert other.is_locked("r1")
                with pytest.raises(BadInput, match="another process"), other.lock("r1"):
                    pass
        assert not other.is_locked("r1") and len(other.events("r1")) == 4


@pytest.mark.parametrize("still", [True, False])
def test_a_run_that_another_took_over_is_left_to_it(proxy: CuttingProxy, server: Server, url: str, still: bool) -> None:
    """The lock is lost while the connection is away; the other holds it still, or has ended."""
    with Archive(url) as other, Archive(through(proxy, url, server)) as archive:
        archive.begin_run(a_run())
        with archive.lock("r1"):
            archive.append("r1", "mine")
            proxy.refuse = True
            proxy.drop()
            with other.lock("r1"):
                other.append("r1", "theirs")
                proxy.refuse = not still
                if still:
                    with pytest.raises(InfrastructureError, match="taken over"):
                        archive.append("r1", "mine")
            proxy.refuse = False
            with pytest.raises(InfrastructureError, match="taken over"):
                archive.append("r1", "mine")
            assert archive.runs() == [a_run()]  # what only reads goes on
            archive.begin_run(a_run("r2"))
        assert [e.kind for e in other.events("r1")] == ["run_started", "mine", "theirs"]
        with archive.lock("r1"):  # later, it is a run like any other
            archive.append("r1", "mine")


def test_a_server_that_is_starting_is_waited_for(
    proxy: CuttingProxy, server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that begins while its server comes back ended with an error."""
    from hipwright.archive.postgres import session

    proxy.starting = 3
    with Archive(through(proxy, url, server)) as archive:
        archive.begin_run(a_run())
    assert proxy.starting == 0
    monkeypatch.setattr(session, "RECONNECT_S", 0.5)
    proxy.starting = 10_000
    with pytest.raises(InfrastructureError, match="is starting up"):
        Archive(through(proxy, url, server))


def test_a_server_that_stays_away_ends_in_one_line(
    fragile_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hipwright.archive.postgres import session

    monkeypatch.setattr(session, "RECONNECT_S", 0.5)
    with Archive(fragile_server.url()) as archive:
        archive.begin_run(a_run())
        fragile_server.stop(signal.SIGQUIT)
        begun = time.monotonic()
        with pytest.raises(InfrastructureError, match="cannot reach") as raised:
            archive.append("r1", "note")
        assert "\n" not in raised.value.message and time.monotonic() - begun < 20
        fragile_server.start()
        archive.append("r1", "note")
        assert len(archive.events("r1")) == 2


@pytest.mark.slow
def test_a_server_that_stops_again_and_again_loses_nothing(fragile_server: Server) -> None:
    """Writers and a reader go on through stops in order, crashes and kills of the server."""
    rng = random.Random(0)
    url, count, writers_count = fragile_server.url(), 400, 3
    writers = [writer(url, who, count) for who in range(writers_count)]
    reported: dict[int, list[int]] = {who: [] for who in range(writers_count)}

    def listen(who: int) -> None:
        stream = writers[who].stdout
        assert stream is not None
        with stream:
            for line in stream:
                reported[who].append(int(line))

    threads = [threading.Thread(target=listen, args=(who,)) for who in range(writers_count)]
    for thread in threads:
        thread.start()
    while not all(reported.values()):
        time.sleep(0.05)
    stops = 0
    while any(one.poll() is None for one in writers):
        time.sleep(rng.uniform(0.2, 0.8))
        fragile_server.stop(rng.choice((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)))
        fragile_server.start()
        stops += 1
    for thread in threads:
        thread.join()
    assert [one.wait() for one in writers] == [0] * writers_count and stops >= 2
    with Archive(url) as archive:
        events = archive.events("shared")
        assert [e.seq for e in events] == list(range(1 + 2 * count * writers_count)) and check(archive) == []
        for who in range(writers_count):
            mine = [(e.kind, e.number) for e in events[1:] if e.data["who"] == who]
            assert mine == [(kind, n) for n in range(count) for kind in "ab"]
            assert reported[who] == list(range(count))


VICTIM = Path(__file__).parents[1] / "search" / "victim.py"


def victim(place: str, tally: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(VICTIM), place, str(tally), "0.1"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def await_search(url: str, process: subprocess.Popen[str]) -> None:
    """Until the search works on its run, or has ended."""
    with Archive(url) as archive:
        while process.poll() is None:
            if archive.runs() and archive.is_locked(archive.run("latest").id):
                return
            time.sleep(0.02)


@pytest.mark.slow
def test_a_search_goes_on_through_kills_of_itself_and_of_the_server(fragile_server: Server, tmp_path: Path) -> None:
    """The outcome is that of an undisturbed search in a SQLite file, byte for byte; no finished evaluation is lost."""
    rng, url, kills, stops, ended = random.Random(1), fragile_server.url(), 0, 0, False
    while not ended:
        with victim(url, tmp_path / "tally") as process:
            await_search(url, process)
            for _ in range(2):
                time.sleep(rng.uniform(0.3, 0.6))
                fragile_server.stop(rng.choice((signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)))
                fragile_server.start()
                stops += process.poll() is None
            if kills < 4:
                kills += process.poll() is None
                process.kill()
            ended = process.wait() == 0
            assert ended or process.returncode == -signal.SIGKILL
    assert stops >= 4 and kills >= 1
    with victim(str(tmp_path / "whole"), tmp_path / "other") as process:
        assert process.stdout is not None and process.stdout.read() and process.wait() == 0
    with Archive(url) as archive, Archive(tmp_path / "whole") as whole:
        assert export(archive, "latest", canonical=True) == export(whole, "latest", canonical=True)
        assert check(archive) == []
        events = archive.events(archive.run("latest").id)
    judged = [event.number for event in events if event.kind == "evaluated"]
    assert len(judged) == len(set(judged)) == 24
    # only what a kill of the search cut off before it was recorded may have been evaluated again
    tally = Counter((tmp_path / "tally").read_text().split())
    assert sum(count - 1 for count in tally.values()) <= kills
