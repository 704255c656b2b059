"""What stands before a served application: who may ask, how much at once, once a key, and figures of it.

In this order: /health (for all), the token, /metrics, draining, the client's rate, the size, a place in the queue, the
body within its time, the idempotency key. What is refused has been read at most to its header, and says when to come
again; of what is too long a little more is read, and dropped, so that its client sees why and not a broken connection.
A request that was let in is answered, also after SIGTERM. WebSockets need the token and a place.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from hipwright.evaluation.faults import MACHINE_FAULTS
from hipwright.train.service.limits import RateLimit, ServiceLimits
from hipwright.train.service.metrics import CONTENT_TYPE, ServiceMetrics, resident_bytes
from hipwright.train.service.replies import MAX_KEY, OtherRequest, Reply, ReplyStore

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
JUDGED = ("/judge", "/step")
KNOWN = (*JUDGED, "/prefetch", "/reset", "/state", "/schema", "/metadata", "/health", "/metrics", "/ws")
DROPPED, DROPPED_S = 8, 2.0  # times the largest body, and seconds, for which a body that is too long is read
MACHINE_WAIT_S = 5.0  # after which a client may ask again where the service itself was at fault


class Refused(Exception):
    """A request that is not served. again_s: seconds after which it may be, None for never."""

    def __init__(self, code: int, reason: str, why: str, again_s: float | None = None) -> None:
        super().__init__(why)
        self.code, self.reason, self.why, self.again_s = code, reason, why, again_s


class CutOff(Exception):
    """The client has gone before its request was whole."""


class ServiceFront:
    """An ASGI application before another. token: "" for none."""

    def __init__(self, application: Application, limits: ServiceLimits | None = None, token: str = "") -> None:
        self.limits = limits or ServiceLimits()
        self.draining = False
        self._application, self._token = application, token
        self._rate = RateLimit(self.limits.per_minute)
        self._replies = ReplyStore(self.limits.replies, self.limits.reply_bytes)
        self._judging = self._bytes = self._sockets = 0
        self.metrics = ServiceMetrics(
            {
                "hipwright_queue": ("Requests that are judged or wait.", lambda: self._judging),
                "hipwright_queue_limit": ("The most of them.", lambda: self.limits.queue),
                "hipwright_body_bytes": ("Reserved for bodies.", lambda: self._bytes),
                "hipwright_kept_reply_bytes": ("Of replies kept by key.", lambda: self._replies.held),
                "hipwright_sockets": ("Open WebSockets.", lambda: self._sockets),
                "hipwright_draining": ("1 after SIGTERM.", lambda: self.draining),
                "process_resident_memory_bytes": ("Memory of the process.", resident_bytes),
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of ASGI."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["path"] in KNOWN else "other"
        try:
            reply = await self._served(scope, receive)
        except CutOff:
            self.metrics.refused["cut off"] += 1
            return
        except Refused as error:
            self.metrics.refused[error.reason] += 1
            headers = [(b"content-type", b"application/json")]
            if error.again_s is not None:
                headers.append((b"retry-after", str(max(1, math.ceil(error.again_s))).encode()))
            if error.code == 401:
                headers.append((b"www-authenticate", b"Bearer"))
            if error.code == 413:
                await self._drop(receive)
            if error.code in (408, 413):
                headers.append((b"connection", b"close"))  # the rest of the body is not read
            reply = Reply(error.code, tuple(headers), json.dumps({"detail": error.why}).encode())
        self.metrics.requests[path, reply.status] += 1
        await send({"type": "http.response.start", "status": reply.status, "headers": list(reply.headers)})
        await send({"type": "http.response.body", "body": reply.body})

    async def _served(self, scope: Scope, receive: Receive) -> Reply:
        path, headers = scope["path"], dict(scope["headers"])
        if path == "/health":
            state = "draining" if self.draining else "healthy"
            return Reply(503 if self.draining else 200, _JSON, json.dumps({"status": state}).encode())
        self._check_token(headers)
        if path == "/metrics":
            return Reply(200, ((b"content-type", CONTENT_TYPE),), self.metrics.page())
        if self.draining:
            raise Refused(503, "draining", "the service is being ended", MACHINE_WAIT_S)
        wait_s = self._rate.wait_s(str((scope.get("client") or ("",))[0]))
        if wait_s:
            raise Refused(429, "rate", f"more than {self.limits.per_minute} requests a minute", wait_s)
        size = self._size(headers)
        judged = path in JUDGED and scope["method"] == "POST"
        self._check_room(size, judged)
        self._bytes += size
        self._judging += judged
        begun = time.monotonic()
        try:
            body = await self._body(receive)
            reply = await self._once(scope, headers, body)
            if judged and reply.status == 200:
                self.metrics.spent(time.monotonic() - begun)
            return reply
        finally:
            self._bytes -= size
            self._judging -= judged

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        given = headers.get(b"authorization", b"")
        if self._token and not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise Refused(401, "token", "the token is missing or wrong")

    def _size(self, headers: dict[bytes, bytes]) -> int:
        """Bytes to reserve for the body: what is announced, else the most."""
        announced, most = headers.get(b"content-length"), self.limits.max_bytes
        if announced is None:
            return most if b"transfer-encoding" in headers else 0
        size = int(announced) if announced.isdigit() else most + 1
        if size > most:
            raise Refused(413, "size", f"more than {most} bytes")
        return size

    def _check_room(self, size: int, judged: bool) -> None:
        if judged and self._judging >= self.limits.queue:
            raise Refused(503, "queue", f"{self._judging} requests wait already", min(60.0, self.metrics.mean_s))
        if self._bytes + size > self.limits.memory_bytes:
            raise Refused(503, "memory", "no memory is left for another request", MACHINE_WAIT_S)

    async def _body(self, receive: Receive) -> bytes:
        """The whole body. Raises Refused where it is too long or too slow, CutOff where the client has gone."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise CutOff
                    body += message.get("body", b"")
                    if len(body) > self.limits.max_bytes:
                        raise Refused(413, "size", f"more than {self.limits.max_bytes} bytes")
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise Refused(408, "slow", f"the body did not come in {self.limits.body_s:g} s") from None

    async def _drop(self, receive: Receive) -> None:
        """Reads what a client still sends, without keeping it, for a bounded time and number of bytes."""
        left = DROPPED * self.limits.max_bytes
        with suppress(TimeoutError):
            async with asyncio.timeout(min(DROPPED_S, self.limits.body_s)):
                while left > 0 and (message := await receive()).get("more_body"):
                    left -= len(message.get("body", b""))

    async def _once(self, scope: Scope, headers: dict[bytes, bytes], body: bytes) -> Reply:
        key = headers.get(b"idempotency-key", b"").decode("latin-1")
        if len(key) > MAX_KEY:
            raise Refused(400, "key", f"an idempotency key has at most {MAX_KEY} characters")
        path = scope["path"]

        async def make() -> Reply:
            return self._counted(path, await self._run(scope, body))

        if not key or scope["method"] != "POST":
            return await make()
        try:
            reply, again = await self._replies.once(f"{path} {key}", body, make, lambda one: _settled(path, one))
        except OtherRequest:
            raise Refused(422, "key", "this idempotency key was used for another request") from None
        self.metrics.replayed += again
        return reply

    def _counted(self, path: str, reply: Reply) -> Reply:
        if path == "/judge" and reply.status == 200:
            status = _object(reply).get("status")
            if isinstance(status, str):
                self.metrics.judged[status] += 1
        return reply

    async def _run(self, scope: Scope, body: bytes) -> Reply:
        """The application's whole reply."""
        pending: list[Scope] = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Scope] = []
        forever = asyncio.Event()

        async def replay() -> Scope:
            if pending:
                return pending.pop()
            await forever.wait()  # the work is not given up with its client: the reply may be asked for again
            return {"type": "http.disconnect"}

        async def keep(message: Scope) -> None:
            sent.append(message)

        try:
            await self._application(scope, replay, keep)
        except Exception as error:  # a defect; what the application has said of it is the reply
            if not sent:
                return Reply(500, _JSON, json.dumps({"detail": f"internal error: {type(error).__name__}"}).encode())
        start = next(message for message in sent if message["type"] == "http.response.start")
        content = b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body")
        return Reply(start["status"], tuple(map(tuple, start.get("headers", ()))), content)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_token(dict(scope["headers"]))
        except Refused as error:
            self.metrics.refused[error.reason] += 1
            return await send({"type": "websocket.close", "code": 1008, "reason": error.why})
        if self.draining or self._sockets >= self.limits.sockets:
            self.metrics.refused["queue"] += 1
            return await send({"type": "websocket.close", "code": 1013, "reason": "come again later"})
        self._sockets += 1
        try:
            return await self._application(scope, receive, send)
        finally:
            self._sockets -= 1


_JSON = ((b"content-type", b"application/json"),)


def _object(reply: Reply) -> dict[str, Any]:
    try:
        plain = json.loads(reply.body)
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) else {}


def _settled(path: str, reply: Reply) -> bool:
    """Whether a reply is kept for its key: it is a verdict, and no fault of the machine."""
    if reply.status != 200:
        return False
    plain = _object(reply)
    if path == "/step":
        return plain.get("reward") is not None
    return plain.get("fault") not in MACHINE_FAULTS
