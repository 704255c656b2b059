"""The service's front before an application that judges in a moment or when it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipwright.train.service.front import ServiceFront
from hipwright.train.service.limits import RateLimit, ServiceLimits
from hipwright.train.service.metrics import ServiceMetrics
from hipwright.train.service.replies import OtherRequest, Reply, ReplyStore

TOKEN = "a long word"


class Judge:
    """The application: answers with a status and its count, after `gate`. faults: answers that blame the machine."""

    def __init__(self) -> None:
        self.asked, self.faults = 0, 0
        self.gate: asyncio.Event | None = None
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        self.bodies.append(message["body"])
        self.asked += 1
        count = self.asked
        if self.gate is not None:
            await self.gate.wait()
        if message["body"] == b"defect":
            raise RuntimeError("planted")
        self.faults, fault = max(0, self.faults - 1), "device" if self.faults else None
        plain = {"status": "unscorable" if fault else "pass", "fault": fault, "count": count}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(plain).encode()})


async def ask(
    front: ServiceFront,
    path: str = "/judge",
    body: bytes | list[Any] = b"{}",
    token: str | None = TOKEN,
    announced: int | None = None,
    client: str = "10.0.0.1",
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of a request. body: chunks; None is a client that goes, "wait" one that stops."""
    chunks = body if isinstance(body, list) else [body]
    pending = list(chunks)
    sent: list[Any] = []

    async def receive() -> Any:
        if not pending or pending[0] == "wait":
            await asyncio.Event().wait()
        chunk = pending.pop(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(pending)}

    async def send(message: Any) -> None:
        sent.append(message)

    given_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given_headers["authorization"] = f"Bearer {token}"
    if announced is not None:
        given_headers["content-length"] = str(announced)
    elif not isinstance(body, list):
        given_headers["content-length"] = str(len(body))
    else:
        given_headers["transfer-encoding"] = "chunked"
    scope = {
        "type": "http",
        "path": path,
        "method": "POST" if path == "/judge" else "GET",
        "client": (client, 1),
        "headers": [(name.encode(), value.encode()) for name, value in given_headers.items()],
    }
    await front(scope, receive, send)
    if not sent:
        return 0, {}, b""
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, sent[1]["body"]


def tried(use: Callable[[ServiceFront, Judge], Awaitable[None]], **limits: Any) -> None:
    """Runs a test on a fresh front."""
    judge = Judge()
    front = ServiceFront(judge, ServiceLimits(**limits), TOKEN)
    asyncio.run(asyncio.wait_for(use(front, judge), 20))  # type: ignore[arg-type]


def test_a_good_request_is_judged_and_counted() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        assert (await ask(front, body=[b"{", b"}"]))[0] == 200 and judge.bodies == [b"{}"]
        page = (await ask(front, "/metrics"))[2].decode()
        assert 'hipwright_requests_total{path="/judge",code="200"} 1' in page
        assert 'hipwright_verdicts_total{status="pass"} 1' in page and "hipwright_judge_seconds_count 1" in page
        assert "hipwright_queue 0" in page and "hipwright_body_bytes 0" in page

    tried(use)


@pytest.mark.parametrize("token", [None, "", "another word", TOKEN + "x"])
def test_without_the_token_nothing_is_read(token: str | None) -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        for path in ("/judge", "/metrics", "/state", "/nowhere"):
            status, headers, _ = await ask(front, path, ["wait"], token=token)
            assert status == 401 and headers["www-authenticate"] == "Bearer"
        assert judge.asked == 0 and (await ask(front, "/health", token=token))[0] == 200

    tried(use)


def test_too_long_too_slow_and_cut_off_bodies_reach_no_judge() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        assert (await ask(front, body=["wait"], announced=101))[0] == 413  # refused before a byte of it came
        assert (await ask(front, body=["wait"], announced=-1))[0] == 413
        assert (await ask(front, body=[b"x" * 60, b"x" * 60]))[0] == 413
        assert (await ask(front, body=[b"x", "wait"]))[0] == 408
        assert (await ask(front, body=[b"x", None]))[0] == 0
        assert judge.asked == 0
        page = (await ask(front, "/metrics"))[2].decode()
        assert 'refused_total{reason="cut off"} 1' in page and "hipwright_body_bytes 0" in page

    tried(use, max_bytes=100, body_s=0.1)


def test_a_full_queue_says_when_to_come_again_and_serves_what_it_took() -> None:
    async def gated(front: ServiceFront, judge: Judge) -> None:
        judge.gate = asyncio.Event()
        first = [asyncio.ensure_future(ask(front)) for _ in range(3)]
        await asyncio.sleep(0.05)
        status, headers, _ = await ask(front)
        assert status == 503 and int(headers["retry-after"]) >= 1 and judge.asked == 3
        judge.gate.set()
        assert [reply[0] for reply in await asyncio.gather(*first)] == [200] * 3
        assert (await ask(front))[0] == 200

    tried(gated, queue=3)


def test_bodies_take_no_more_memory_than_is_allowed() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        judge.gate = asyncio.Event()
        first = [asyncio.ensure_future(ask(front, body=b"x" * 90)) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert (await ask(front, body=b"x" * 90))[0] == 503 and judge.asked == 2
        judge.gate.set()
        await asyncio.gather(*first)

    tried(use, max_bytes=100, memory_bytes=200)


def test_a_client_that_asks_too_often_waits_and_others_do_not() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        found = [(await ask(front))[0] for _ in range(4)]
        assert found == [200, 200, 429, 429]
        assert (await ask(front, client="10.0.0.2"))[0] == 200

    tried(use, per_minute=12)


def test_a_request_that_is_sent_again_is_judged_once() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        judge.gate = asyncio.Event()
        both = [asyncio.ensure_future(ask(front, idempotency_key="one")) for _ in range(2)]
        await asyncio.sleep(0.05)
        judge.gate.set()
        replies = [*await asyncio.gather(*both), await ask(front, idempotency_key="one")]
        assert judge.asked == 1 and {reply[2] for reply in replies} == {replies[0][2]}
        assert (await ask(front, body=b"{ }", idempotency_key="one"))[0] == 422
        assert (await ask(front, idempotency_key="two"))[0] == 200 and judge.asked == 2
        assert (await ask(front, idempotency_key="k" * 201))[0] == 400
        assert "hipwright_replayed_total 2" in (await ask(front, "/metrics"))[2].decode()

    tried(use)


def test_a_fault_of_the_machine_is_judged_anew_under_the_same_key() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        judge.faults = 1
        found = [json.loads((await ask(front, idempotency_key="one"))[2])["status"] for _ in range(3)]
        assert found == ["unscorable", "pass", "pass"] and judge.asked == 2

    tried(use)


def test_a_client_that_goes_while_it_is_judged_finds_its_reply_later() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        judge.gate = asyncio.Event()
        gone = asyncio.ensure_future(ask(front, idempotency_key="one"))
        await asyncio.sleep(0.05)
        gone.cancel()
        judge.gate.set()
        assert (await ask(front, idempotency_key="one"))[0] == 200 and judge.asked == 1

    tried(use)


def test_a_defect_is_a_500_and_frees_its_place() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        for _ in range(3):
            status, _, body = await ask(front, body=b"defect", idempotency_key="one")
            assert (status, json.loads(body)) == (500, {"detail": "internal error: RuntimeError"})
        assert (await ask(front))[0] == 200

    tried(use, queue=1)


def test_draining_lets_nothing_more_in_and_ends_what_it_took() -> None:
    async def use(front: ServiceFront, judge: Judge) -> None:
        judge.gate = asyncio.Event()
        taken = asyncio.ensure_future(ask(front))
        await asyncio.sleep(0.05)
        front.draining = True
        status, headers, _ = await ask(front)
        assert status == 503 and "retry-after" in headers and (await ask(front, "/health"))[0] == 503
        judge.gate.set()
        assert (await taken)[0] == 200

    tried(use)


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.tuples(st.floats(0, 5), st.sampled_from("ab")), max_size=60), per_minute=st.integers(1, 600))
def test_no_client_gets_more_than_its_rate(steps: list[tuple[float, str]], per_minute: int) -> None:
    now = [0.0]
    rate = RateLimit(per_minute, lambda: now[0])
    allowed = {"a": 0, "b": 0}
    for wait, client in steps:
        now[0] += wait
        found = rate.wait_s(client)
        assert found >= 0
        allowed[client] += found == 0
    assert all(count <= max(1, per_minute / 6) + now[0] * per_minute / 60 + 1e-6 for count in allowed.values())


def test_kept_replies_are_bounded() -> None:
    async def use() -> None:
        store = ReplyStore(count=5, size=3000)

        async def make() -> Reply:
            return Reply(200, (), b"x" * 500)

        for number in range(20):
            await store.once(f"{number}", b"body", make, lambda reply: True)
            assert store.held <= 3000
        with pytest.raises(OtherRequest):
            await store.once("19", b"other", make, lambda reply: True)
        assert (await store.once("0", b"other", make, lambda reply: True))[1] is False

    asyncio.run(use())


def test_the_page_of_figures_is_in_prometheus_form() -> None:
    metrics = ServiceMetrics({"hipwright_queue": ("Waiting.", lambda: 3)})
    metrics.spent(0.3)
    metrics.refused["rate"] += 2
    lines = metrics.page().decode().splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    for line in lines:
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            float(value)
            base = name.partition("{")[0]
            assert base in names or base.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") in names
    assert (
        'hipwright_judge_seconds_bucket{le="0.25"} 0' in lines and 'hipwright_judge_seconds_bucket{le="1.0"} 1' in lines
    )
