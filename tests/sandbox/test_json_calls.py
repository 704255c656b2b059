"""JSON calls: one message each way, the same errors as other calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipwright.errors import CandidateError, WorkerError
from hipwright.sandbox import RemoteFailure, Session, WorkerDied, WorkerTimeout, Zygote

SERVICE = """
import os, time
from hipwright.errors import CandidateError
from hipwright.sandbox import attach_fd, given_fd
def made(text):
    fd = os.memfd_create("made")
    os.write(fd, text)
    return fd
class Service:
    def __init__(self, init, bundle): pass
    def echo(self, header, bundle): return header, None
    def long(self, header, bundle): return {"text": "x" * 100_000}, None
    def wrong(self, header, bundle): raise CandidateError("it is wrong", status="timeout")
    def bug(self, header, bundle): raise KeyError("nothing")
    def die(self, header, bundle): os._exit(3)
    def sleep(self, header, bundle): time.sleep(60)
    def list(self, header, bundle): return [1, 2], None
    def read(self, header, bundle): return {"text": os.pread(given_fd(), 100, 0).decode()}, None
    def make(self, header, bundle):
        attach_fd(made(header["text"].encode()))
        return {}, None
    def make_and_fail(self, header, bundle):
        attach_fd(made(b"lost"))
        raise KeyError("nothing")
    def files(self, header, bundle): return {"files": sorted(os.listdir("/proc/self/fd"))}, None
"""


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Zygote, Path]]:
    path = tmp_path_factory.mktemp("service") / "service.py"
    path.write_text(SERVICE)
    with Zygote(("numpy",), ro=(path.parent,)) as made:
        yield made, path


@pytest.fixture
def session(zygote: tuple[Zygote, Path]) -> Iterator[Session]:
    with zygote[0].session(f"{zygote[1]}:Service", {}) as opened:
        yield opened


def test_what_goes_in_comes_back(session: Session) -> None:
    given: dict[str, Any] = {"a": 1.5, "b": [1, None, "x"], "c": 1e300}
    for _ in range(3):
        assert session.call_json("echo", given, timeout_s=10) == given
    assert session.call("echo", given, timeout_s=10)[0] == given  # both kinds in one session


def test_answers_too_long_for_a_message_take_the_long_way(session: Session) -> None:
    assert len(session.call_json("long", {}, timeout_s=10)["text"]) == 100_000
    assert session.call_json("echo", {"n": 1}, timeout_s=10) == {"n": 1}


def test_errors_are_those_of_other_calls(session: Session) -> None:
    with pytest.raises(CandidateError, match="it is wrong") as caught:
        session.call_json("wrong", {}, timeout_s=10)
    assert caught.value.status == "timeout"
    with pytest.raises(RemoteFailure, match="nothing"):
        session.call_json("bug", {}, timeout_s=10)
    assert session.alive


@pytest.mark.parametrize(("method", "error"), [("die", WorkerDied), ("sleep", WorkerTimeout), ("list", WorkerError)])
def test_the_dead_the_slow_and_the_malformed(session: Session, method: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        session.call_json(method, {}, timeout_s=2)
    assert not session.alive


def test_a_descriptor_goes_with_a_call_and_comes_with_an_answer(session: Session) -> None:
    before = session.call_json("files", {}, timeout_s=10)
    fd = os.memfd_create("given")
    os.write(fd, b"from the parent")
    assert session.call_json("read", {}, timeout_s=10, give=fd) == {"text": "from the parent"}
    os.close(fd)
    with pytest.raises(RemoteFailure, match="without a file descriptor"):
        session.call_json("read", {}, timeout_s=10)
    taken: list[int] = []
    session.call_json("make", {"text": "from the child"}, timeout_s=10, take=taken)
    assert len(taken) == 1 and os.pread(taken[0], 100, 0) == b"from the child"
    os.close(taken[0])
    assert session.call_json("files", {}, timeout_s=10) == before  # nothing is left open there


def test_a_descriptor_that_nobody_takes_is_dropped(session: Session) -> None:
    before, mine = session.call_json("files", {}, timeout_s=10), len(list(Path("/proc/self/fd").iterdir()))
    session.call_json("make", {"text": "x"}, timeout_s=10)
    taken: list[int] = []
    with pytest.raises(RemoteFailure):
        session.call_json("make_and_fail", {}, timeout_s=10, take=taken)
    assert session.call_json("echo", {"n": 1}, timeout_s=10, take=taken) == {"n": 1} and not taken
    assert session.call_json("files", {}, timeout_s=10) == before
    assert len(list(Path("/proc/self/fd").iterdir())) == mine


def test_a_header_too_long_is_the_callers_mistake(session: Session) -> None:
    with pytest.raises(ValueError, match="too many"):
        session.call_json("echo", {"text": "x" * 100_000}, timeout_s=10)
