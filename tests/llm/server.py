"""A local provider for tests: real HTTP, OpenAI's and Anthropic's APIs, and the faults of real providers.

    with LocalProvider(lambda messages, call: "an answer") as provider:
        ... hipwright ... --llm provider.spec("compatible")

It speaks OpenAI's chat completions (POST /v1/chat/completions) and Anthropic's messages (POST /v1/messages), each
streamed and in one piece, with usage. `reply(messages, call)` is asked for every request that arrives with the right
key: messages are {"role", "content"} with the text in "content" (an Anthropic system prompt comes first), call counts
requests from 0. It returns a text, a `Reply`, or a `Fault`. It runs in the request's own thread, and may block.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.llm.wires import WIRES, Fault, ProviderWire, Reply, Seen

KEY = "sk-local-0123456789abcdef0123456789"
"""The key that `environment()` sets; a provider made with key=KEY refuses all others."""


def rate_limit(retry_after: float | None = None) -> Fault:
    return Fault("status", 429, retry_after, "Rate limit reached")


def server_error(code: int = 500) -> Fault:
    return Fault("status", code, None, "The server had an error")


def wrong_key() -> Fault:
    return Fault("status", 401, None, "Incorrect API key provided")


def no_credit() -> Fault:
    """As OpenAI answers where the account has run out."""
    return Fault("status", 429, None, "You exceeded your current quota", name="insufficient_quota")


def refused(code: int = 400, message: str = "Unsupported value") -> Fault:
    return Fault("status", code, None, message)


def stall(after: int = 1) -> Fault:
    """Stalls after `after` pieces (0: without a status line), until the client leaves or the provider closes."""
    return Fault("stall", after=after)


def cut(after: int = 1, *, clean: bool = False) -> Fault:
    """Ends the connection after `after` pieces. clean: HTTP ends well, only the stream's end is missing."""
    return Fault("cut", after=after, clean=clean)


def garbage() -> Fault:
    """Answers 200 with a page that is neither JSON nor a stream."""
    return Fault("garbage")


Script = Callable[[list[dict[str, str]], int], "str | Reply | Fault"]


@dataclass
class LocalProvider:
    """The provider (see the module). requests: all received ones in order. peak: the most open at once."""

    reply: Script = field(default=lambda messages, call: "hello")
    key: str | None = None
    requests: list[Seen] = field(default_factory=list)
    peak: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> LocalProvider:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def base_url(self) -> str:
        """The base URL of the OpenAI API."""
        return f"{self.root}/v1"

    def spec(self, provider: str = "compatible", model: str = "small", *, role: str = "", weight: str = "") -> str:
        """A `--llm` value for this server: "openai" and "anthropic" need a key in the environment, others none."""
        url = self.root if provider == "anthropic" else self.base_url
        return f"{role + '=' if role else ''}{provider}:{model}@{url}{'*' + weight if weight else ''}"

    @staticmethod
    def environment() -> dict[str, str]:
        """The variables that a client of this server needs, for monkeypatch.setenv or subprocess."""
        return {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}

    @property
    def answered(self) -> list[Seen]:
        return [seen for seen in self.requests if seen.answered]

    def arrived(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Seen:
        with self._lock:
            seen = Seen(len(self.requests), path, headers, body, _messages(body))
            self.requests.append(seen)
            self._open += 1
            self.peak = max(self.peak, self._open)
            return seen

    def left(self) -> None:
        with self._lock:
            self._open -= 1


def _messages(body: dict[str, Any]) -> list[dict[str, str]]:
    found = [{"role": "system", "content": _text(body["system"])}] if body.get("system") else []
    return found + [{"role": one["role"], "content": _text(one["content"])} for one in body.get("messages", [])]


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    provider: LocalProvider


class _Left(Exception):
    """Raised to close the connection at once."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: tests read `requests`."""

    def handle(self) -> None:
        try:
            super().handle()
        except (_Left, OSError):  # the client left first, or a scripted cut
            self.close_connection = True

    def do_POST(self) -> None:
        provider = self.server.provider
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        seen = provider.arrived(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        try:
            wire = WIRES.get(self.path)
            if wire is None:
                self._status(Fault("status", 404, None, f"no such path: {self.path}"))
            elif provider.key is not None and _key(seen) != provider.key:
                self._status(wrong_key())
            else:
                self._perform(seen, wire, provider.reply(seen.messages, seen.call))
        finally:
            provider.left()

    def _perform(self, seen: Seen, wire: ProviderWire, reply: str | Reply | Fault) -> None:
        if isinstance(reply, str):
            reply = Reply(reply)
        if isinstance(reply, Reply):
            self.server.provider.closing.wait(reply.delay) if reply.delay else None
            if seen.body.get("stream"):
                self._chunked("text/event-stream", wire.stream(seen, reply))
            else:
                self._whole(200, "application/json", json.dumps(wire.whole(seen, reply)))
            seen.answered = True
        elif reply.kind == "status":
            self._status(reply)
        elif reply.kind == "garbage":
            self._whole(200, "text/html", "<html>the proxy says hello</html>")
        else:
            self._break_off(seen, wire, reply)

    def _break_off(self, seen: Seen, wire: ProviderWire, fault: Fault) -> None:
        """Sends the beginning of an answer, then stalls or closes."""
        if fault.after:
            pieces = list(wire.stream(seen, Reply(fault.text)))[: wire.preamble + fault.after]
            self._chunked("text/event-stream", iter(pieces), end=fault.kind == "cut" and fault.clean)
        if fault.kind == "stall":
            self.server.provider.closing.wait()
        if not fault.clean:
            raise _Left

    def _status(self, fault: Fault) -> None:
        error = {"message": fault.message, "type": fault.name or "error", "code": fault.name or fault.code}
        extra = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
        if fault.retry_after is not None and fault.retry_after % 1:
            extra = {"retry-after-ms": f"{fault.retry_after * 1000:g}"}
        self._whole(fault.code, "application/json", json.dumps({"type": "error", "error": error}), extra)

    def _whole(self, code: int, kind: str, text: str, extra: dict[str, str] | None = None) -> None:
        data = text.encode()
        self.send_response(code)
        for name, value in {"content-type": kind, "content-length": str(len(data)), **(extra or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _chunked(self, kind: str, pieces: Iterator[str], *, end: bool = True) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if end:
            self.wfile.write(b"0\r\n\r\n")


def _key(seen: Seen) -> str:
    return seen.headers.get("x-api-key") or seen.headers.get("authorization", "").removeprefix("Bearer ")
