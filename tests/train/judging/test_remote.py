"""A judge over HTTP: a server on the loopback, and network errors."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
import uvicorn

from hipwright.errors import BadInput, InfrastructureError
from hipwright.records import Evaluation, Program
from hipwright.train.environment import Environment
from hipwright.train.judging import remote
from hipwright.train.judging.remote import RemoteJudge
from hipwright.train.judging.serve import app
from hipwright.train.records import TrainingProblem
from hipwright.train.rewards import REWARDS
from hipwright.train.service.front import ServiceFront
from hipwright.train.service.limits import ServiceLimits
from hipwright.train.service.server import serve

TASK = TrainingProblem(name="row_sum", source="import torch")
TOKEN = "a long word"


class ServerJudge:
    """The server's judge. breaks: number of requests that fail first."""

    def __init__(self) -> None:
        self.device, self.clock = "NVIDIA H200", "device"
        self.prefetched: list[str] = []
        self.breaks = 0
        self.asked = 0

    def submit(self, problem: TrainingProblem, program: Program) -> Future[Evaluation]:
        self.asked += 1
        if self.breaks:
            self.breaks -= 1
            raise InfrastructureError("busy")
        done: Future[Evaluation] = Future()
        key = "another" if program.text == "mixed up" else program.key
        done.set_result(Evaluation(task=problem.key, program=key, status="pass", coverage=0.5))
        return done

    def prefetch(self, problems: Sequence[TrainingProblem]) -> None:
        self.prefetched += [problem.name for problem in problems]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, ServerJudge]]:
    here = ServerJudge()
    server = uvicorn.Server(uvicorn.Config(ServiceFront(app(here), token=TOKEN), port=0, log_level="error"))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}", here
    server.should_exit = True
    thread.join(5)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: None)


def test_an_evaluation_is_returned_complete(served: tuple[str, ServerJudge]) -> None:
    url, here = served
    program = Program(text="HIP = ''", knobs={"BLOCK": 64})
    with RemoteJudge(url, token=TOKEN) as judge:
        assert (judge.device, judge.clock) == ("NVIDIA H200", "device")
        judge.prefetch([TASK])
        found = judge.submit(TASK, program).result(timeout=10)
        deadline = time.monotonic() + 10
        while not here.prefetched and time.monotonic() < deadline:
            threading.Event().wait(0.01)
    assert found == Evaluation(task=TASK.key, program=program.key, status="pass", coverage=0.5)
    assert here.prefetched == ["row_sum"]


def test_a_failed_request_is_retried_and_then_unscorable(served: tuple[str, ServerJudge]) -> None:
    url, here = served
    with RemoteJudge(url, token=TOKEN, attempts=3) as judge:
        here.breaks, here.asked = 2, 0
        assert judge.submit(TASK, Program(text="a")).result(timeout=10).passed and here.asked == 3
        here.breaks, here.asked = 9, 0
        lost = judge.submit(TASK, Program(text="b")).result(timeout=10)
        assert (lost.status, lost.fault, here.asked) == ("unscorable", "service", 3)
        here.breaks = 0
        mixed = judge.submit(TASK, Program(text="mixed up")).result(timeout=10)
        assert mixed.fault == "service" and "another program" in mixed.message


def test_verdicts_are_cached_and_faults_are_not(served: tuple[str, ServerJudge]) -> None:
    url, here = served
    here.asked, program = 0, Program(text="c")
    with RemoteJudge(url, token=TOKEN, attempts=1) as judge:
        here.breaks = 1
        assert judge.submit(TASK, program).result(timeout=10).fault == "service"
        assert all(judge.submit(TASK, program).result(timeout=10).passed for _ in range(3))
    assert here.asked == 2


def test_a_server_that_goes_away_is_unscorable(served: tuple[str, ServerJudge]) -> None:
    judge = RemoteJudge(served[0], token=TOKEN, attempts=2)
    with Environment(judge, REWARDS["hipwright"], lambda text, task: Program(text=text)) as environment:
        judge.url = "http://127.0.0.1:9"  # without a listener
        assert [one.reward for one in environment.score_group(TASK, ["a", "b"])] == [None, None]


def test_an_address_without_a_judge_is_refused() -> None:
    with pytest.raises(BadInput, match="no judge answers"):
        RemoteJudge("http://127.0.0.1:9").__enter__()


@pytest.mark.parametrize("token", ["", "another word"])
def test_a_wrong_token_is_refused(served: tuple[str, ServerJudge], token: str) -> None:
    with pytest.raises(BadInput, match="401"):
        RemoteJudge(served[0], token=token).__enter__()


def post(url: str, data: bytes) -> int:
    request = urllib.request.Request(f"{url}/judge", data=data, headers={"Authorization": f"Bearer {TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_bad_requests_are_refused(served: tuple[str, ServerJudge]) -> None:
    url, here = served
    here.asked = 0
    good: dict[str, Any] = {"problem": TASK.to_dict(), "program": Program(text="x").to_dict()}
    bad = [
        b"",
        b"[1]",
        b"{",
        b"[" * 100_000,
        json.dumps({**good, "program": {"text": 3}}).encode(),
        json.dumps({"problem": good["problem"]}).encode(),
    ]
    assert [post(url, data) for data in bad] == [400] * len(bad)
    long = b" " * (ServiceLimits().max_bytes + 1)
    assert [post(url, long) for _ in range(4)] == [413] * 4  # each client sends all before it reads the answer
    assert here.asked == 0 and post(url, json.dumps(good).encode()) == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "node7"])
def test_serving_off_the_loopback_needs_a_token(host: str) -> None:
    with pytest.raises(BadInput, match="no token"):
        serve(app(ServerJudge()), host, 8417)  # type: ignore[arg-type]


@pytest.mark.parametrize(("header", "reached"), [(b"", False), (f"Bearer {TOKEN}".encode(), True)])
def test_the_guard_covers_websockets(header: bytes, reached: bool) -> None:
    seen: list[str] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append("inside")

    async def send(message: Any) -> None:
        seen.append(message["type"])

    scope = {"type": "websocket", "headers": [(b"authorization", header)]}
    asyncio.run(ServiceFront(inner, token=TOKEN)(scope, None, send))  # type: ignore[arg-type]
    assert seen == (["inside"] if reached else ["websocket.close"])


@pytest.mark.parametrize("url", ["", "node7:8765", "file:///etc/passwd"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        RemoteJudge(url)
