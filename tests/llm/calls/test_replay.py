"""Replay: every recorded answer bit for bit; missing calls are reported with the differences."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from hipwright.archive import Archive, LogEntry, export
from hipwright.errors import BadInput, InfrastructureError, OutOfBudget, ProviderError
from hipwright.llm.archive_call_log import ArchiveCallLog
from hipwright.llm.call_log import MemoryCallLog, RecordedCallLog, RefusedCall
from hipwright.llm.client import Client
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.file_call_log import FileCallLog
from hipwright.llm.records import Message, Request
from hipwright.llm.replay import Replay, differences, find_recording, nearest, read_recording, recording_of
from hipwright.records import Run
from tests.llm.calls.call_log_contract import ODD, answer, request, reserved

REFUSED = request(9, role="optimizer")


def record(log: RecordedCallLog) -> list[Request]:
    """A recording with answers, a lost attempt, a lost call and two refusals."""
    answered = [request(n, index, f"{ODD} {n}") for n in range(3) for index in range(2)]
    for asked in answered:
        if asked.index:
            log.reserve(reserved(asked, cost=0.5))  # a lost attempt
        log.reserve(reserved(asked))
        log.settle(answer(asked, f"{ODD} answer {asked.number}.{asked.index}", cost=0.1, seconds=0.1 + asked.number))
    log.reserve(reserved(request(5)))
    log.refuse(RefusedCall.of(REFUSED, OutOfBudget("nothing is left", hint="raise it")))
    log.refuse(RefusedCall.of(request(8), ProviderError("no such model")))
    return answered


def a_run(name: str) -> Run:
    return Run(id=name, task="t", targets=("gfx942",), budget=4, policy="islands", seed=1)


@pytest.fixture(params=["memory", "file", "archive", "export"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedCallLog:
    """The same recording from each kind of source."""
    if request.param == "memory":
        log = MemoryCallLog()
        record(log)
        return log
    if request.param == "file":
        with FileCallLog(tmp_path / "calls.jsonl") as file:
            record(file)
        return find_recording(str(tmp_path / "calls.jsonl"))
    with Archive(tmp_path / "home") as archive:
        archive.begin_run(a_run("2026-a"))
        archive.append("2026-a", "resumed")
        record(ArchiveCallLog(archive, "2026-a"))
        archive.append("2026-a", "finished", -1, {"reason": "budget"})
        if request.param == "archive":
            return find_recording("latest", archive)
        path = tmp_path / "run.jsonl"
        path.write_text(export(archive, "2026-a"))
        return find_recording(str(path), archive)


def test_an_answered_call_comes_back_bit_for_bit(recorded: RecordedCallLog) -> None:
    original = MemoryCallLog()
    calls = record(original)
    replay = Replay(recorded)
    assert replay.answers() == [] and Budget.resumed(SpendingLimits(usd=0.0), replay).spent.usd == 0
    for asked in random.Random(0).sample(calls, len(calls)):
        found = replay.find(asked.key)
        assert found == original.find(asked.key) and found is not None
        assert found.to_json() == original.find(asked.key).to_json()  # type: ignore[union-attr]
    assert sorted(a.text for a in replay.answers()) == sorted(a.text for a in original.answers())
    assert replay.lost() == []


def test_what_was_refused_is_refused_again_in_the_same_words(recorded: RecordedCallLog) -> None:
    replay = Replay(recorded)
    assert replay.find(REFUSED.key) is None
    for call in (lambda: replay.admit(REFUSED), lambda: replay.reserve(reserved(REFUSED))):
        with pytest.raises(OutOfBudget, match=r"^nothing is left$") as over:
            call()
        assert over.value.hint == "raise it"
    with pytest.raises(ProviderError, match=r"^no such model$") as denied:
        replay.admit(request(8))
    assert not denied.value.retryable


def test_a_missing_call_is_named_with_what_differs(recorded: RecordedCallLog) -> None:
    replay = Replay(recorded)
    for asked, *said in (
        (request(1, 1, f"{ODD} 7"), "call 1 of role 'translator' for proposal 1", "message 1 (user) differs", "7"),
        (request(1, 7, f"{ODD} 1"), "index was 1 and is 7"),
        (request(1, 1, f"{ODD} 1", model="openai:o3"), "model was 'openai:gpt-4o' and is 'openai:o3'"),
        (request(1, 1, f"{ODD} 1", temperature=0.5), "temperature was None and is 0.5"),
        (request(1, 1, f"{ODD} 1", max_tokens=5), "max_tokens was 8192 and is 5"),
        (request(-1, role="judge"), "role 'judge' for no proposal", "role was"),
        (request(5), "it was sent in the recorded run, and its answer was lost"),
    ):
        assert replay.find(asked.key) is None  # type: ignore[arg-type, union-attr]
        with pytest.raises(ProviderError) as caught:
            replay.reserve(reserved(asked))  # type: ignore[arg-type]
        assert not caught.value.retryable
        for part in said:
            assert part in caught.value.message, caught.value.message


def test_the_first_line_that_differs_is_shown_where_it_differs() -> None:
    old, new = "same\n" + "a" * 500 + "OLD" + "b" * 500 + "\nend", "same\n" + "a" * 500 + "NEW" + "b" * 500 + "\nend"
    (said,) = differences(request(text=old), request(text=new))
    assert "line 2" in said and "OLD" in said and "NEW" in said and len(said) < 300
    (said,) = differences(request(text="abc"), request(text="abc\nmore"))
    assert "length: 3 characters, now 8" in said
    more = Request(role="translator", model="m", messages=(Message(role="system", text="x"),) * 2)
    assert "there were 1 messages and are 2" in differences(request(), more)


def test_nearest_goes_by_place_then_by_text() -> None:
    calls = [request(n, index, text) for n in range(3) for index in range(2) for text in ("alpha beta", "alpha gamma")]
    assert nearest(request(1, 1, "alpha gamm"), calls) == request(1, 1, "alpha gamma")
    assert nearest(request(7, 0, "alpha beta"), calls) == request(2, 0, "alpha beta")
    assert nearest(request(), []) is None


def test_a_secret_in_a_differing_line_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "planted-secret-value")
    log = MemoryCallLog()
    log.reserve(reserved(request(text="it was planted-secret-value")))
    with pytest.raises(ProviderError) as caught:
        Replay(log).admit(request(text="it is planted-secret-value"))
    assert "planted-secret-value" not in caught.value.message and "<secret>" in caught.value.message


# ---------------------------------------------------------------- into the run under way


def test_a_replayed_runs_own_log_equals_the_recorded_one(tmp_path: Path) -> None:
    """Replays in another order, by several threads, and twice give identical canonical exports."""
    with Archive(tmp_path) as archive:
        for name in ("first", "again", "third"):
            archive.begin_run(a_run(name))
        calls = record(ArchiveCallLog(archive, "first"))
        for source, name in (("first", "again"), ("again", "third")):  # a replay can be replayed
            replay = Replay(recording_of(archive, source), ArchiveCallLog(archive, name))
            order = [*calls, *calls]
            random.Random(name).shuffle(order)
            found: list[object] = []

            def ask(part: list[Request], replay: Replay = replay, found: list[object] = found) -> None:
                found.extend(replay.find(asked.key) for asked in part)

            threads = [threading.Thread(target=ask, args=(order[n::4],)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == len(order) and None not in found
            with pytest.raises(OutOfBudget):
                replay.admit(REFUSED)
            assert len(replay.answers()) == len(calls) and replay.lost() == []
        first, again, third = (export(archive, name, canonical=True) for name in ("first", "again", "third"))
        assert first == again == third and first.count('"kind":"called"') == len(calls)
        kept = ArchiveCallLog(archive, "third")
        assert [refused.request for refused in kept.refusals()] == [REFUSED]


def test_a_replay_settles_nothing() -> None:
    with pytest.raises(ValueError, match="replay"):
        Replay(MemoryCallLog()).settle(answer(request()))
    with pytest.raises(ProviderError, match="no call at all"):
        Replay(MemoryCallLog()).admit(request())
    Replay(MemoryCallLog()).refuse(RefusedCall.of(request(), ProviderError("x")))  # nowhere to put it


def test_a_client_in_a_replay_needs_neither_key_nor_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    log, then = MemoryCallLog(), MemoryCallLog()
    calls = record(log)
    with Client(Replay(log, then), Budget(SpendingLimits(usd=0.0))) as client:
        assert client.ask(calls[3]) == log.find(calls[3].key)
        answered, refused, missing = client.ask_all([calls[0], REFUSED, request(77)])
    assert answered == log.find(calls[0].key)
    assert isinstance(refused, OutOfBudget) and refused.message == "nothing is left"
    assert isinstance(missing, ProviderError) and "proposal 77" in missing.message and not missing.retryable
    assert {a.request for a in then.answers()} == {calls[0].key, calls[3].key}
    assert [kept.request for kept in then.refusals()] == [REFUSED]


# ---------------------------------------------------------------- files


def test_what_is_no_recording_is_bad_input(tmp_path: Path) -> None:
    with Archive(tmp_path / "home") as archive:
        archive.begin_run(a_run("r1"))
        empty = export(archive, "r1")  # a run whose models were never asked can be done again all the same
        assert recording_of(archive, "r1").reservations() == []
        with pytest.raises(BadInput, match="no run"):
            find_recording("nothing", archive)
        record(ArchiveCallLog(archive, "r1"))
        canonical = export(archive, "r1", canonical=True)
    path = tmp_path / "file"
    for text, why in (
        (canonical, "canonical export"),
        ("", "no call"),
        ("{}\n", "not an event"),
        ("import torch\n", "not a JSON object"),
        ("[1]\n", "not a JSON object"),
    ):
        path.write_text(text)
        with pytest.raises(BadInput, match=why):
            read_recording(path)
    path.write_text(empty)
    assert read_recording(path).reservations() == []
    with pytest.raises(BadInput, match="cannot read"):
        read_recording(tmp_path / "missing")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not a JSON object"):
        read_recording(path)


def test_an_export_that_was_cut_is_an_error_and_a_log_that_was_cut_is_not(tmp_path: Path) -> None:
    """A log may end with a torn line, since it is written line by line; an export may not."""
    with Archive(tmp_path / "home") as archive:
        archive.begin_run(a_run("r1"))
        record(ArchiveCallLog(archive, "r1"))
        path = tmp_path / "export"
        path.write_text(export(archive, "r1")[:-30])
    with pytest.raises(InfrastructureError, match=r"export:\d+: .*damaged"):
        read_recording(path)
    with FileCallLog(tmp_path / "log") as log:
        record(log)
    whole = (tmp_path / "log").read_bytes()
    path.write_bytes(whole[:-30])
    assert len(read_recording(path).refusals()) == 1
    assert path.read_bytes() == whole[:-30], "reading mends nothing"


def test_events_that_are_no_calls_are_left_out(tmp_path: Path) -> None:
    with Archive(tmp_path / "home") as archive:
        archive.begin_run(a_run("r1"))
        archive.append_all(
            "r1", [LogEntry("proposed", 0, {"expansion": {}}), LogEntry("of a later version", 3, {"x": 1})]
        )
        calls = record(ArchiveCallLog(archive, "r1"))
        log = recording_of(archive, "latest")
    assert [a.request for a in log.answers()] == [asked.key for asked in calls]
