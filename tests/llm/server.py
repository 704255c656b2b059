"""A model's provider on this machine: real HTTP, both wires, and the faults that real providers have.

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
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

KEY = "sk-local-0123456789abcdef0123456789"
"""The key that `environment()` sets; a provider made with key=KEY refuses every other."""


@dataclass(frozen=True)
class Reply:
    """An answer with what a bare text cannot say. Tokens of None: about four bytes each; counted: with usage at all."""

    text: str
    finish: Literal["stop", "length", "filtered"] = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    delay: float = 0.0
    counted: bool = True
    thoughts: str = ""
    """What the model thinks first (OpenAI wire only)."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong instead of an answer. `after`: pieces of `text` that are sent before a stall or a cut."""

    kind: Literal["status", "stall", "cut", "garbage"]
    code: int = 0
    retry_after: float | None = None
    message: str = ""
    after: int = 1
    clean: bool = False
    text: str = "the beginning of an answer that never ends "


def rate_limit(retry_after: float | None = None) -> Fault:
    return Fault("status", 429, retry_after, "Rate limit reached")


def server_error(code: int = 500) -> Fault:
    return Fault("status", code, None, "The server had an error")


def wrong_key() -> Fault:
    return Fault("status", 401, None, "Incorrect API key provided")


def refused(code: int = 400, message: str = "Unsupported value") -> Fault:
    return Fault("status", code, None, message)


def stall(after: int = 1) -> Fault:
    """Silent after so many pieces (0: not even a status line), until the client leaves or the provider closes."""
    return Fault("stall", after=after)


def cut(after: int = 1, *, clean: bool = False) -> Fault:
    """The connection ends after so many pieces. clean: HTTP ends well, and only the stream's own end is missing."""
    return Fault("cut", after=after, clean=clean)


def garbage() -> Fault:
    """Status 200 and a page that is neither JSON nor a stream."""
    return Fault("garbage")


Script = Callable[[list[dict[str, str]], int], "str | Reply | Fault"]


@dataclass
class Seen:
    """One request as it came. answered: the whole answer was handed to the network."""

    call: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    messages: list[dict[str, str]]
    answered: bool = False


@dataclass
class LocalProvider:
    """See the module. `requests`: all that came, in order. `peak`: the most that were open at once."""

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
        """For the OpenAI wire."""
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
    """The connection is to be closed as it is."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `requests`, not a log."""

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
            wire = _WIRES.get(self.path)
            if wire is None:
                self._status(Fault("status", 404, None, f"no such path: {self.path}"))
            elif provider.key is not None and _key(seen) != provider.key:
                self._status(wrong_key())
            else:
                self._perform(seen, wire, provider.reply(seen.messages, seen.call))
        finally:
            provider.left()

    def _perform(self, seen: Seen, wire: _Wire, reply: str | Reply | Fault) -> None:
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

    def _break_off(self, seen: Seen, wire: _Wire, fault: Fault) -> None:
        """Send the beginning of an answer, then stall or close."""
        if fault.after:
            pieces = list(wire.stream(seen, Reply(fault.text)))[: wire.preamble + fault.after]
            self._chunked("text/event-stream", iter(pieces), end=fault.kind == "cut" and fault.clean)
        if fault.kind == "stall":
            self.server.provider.closing.wait()
        if not fault.clean:
            raise _Left

    def _status(self, fault: Fault) -> None:
        error = {"message": fault.message, "type": "error", "code": fault.code}
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


def _pieces(text: str) -> list[str]:
    """The text in a few pieces, as a model streams it; code points stay whole."""
    size = max(1, len(text) // 5 + 1)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _tokens(seen: Seen, reply: Reply) -> tuple[int, int]:
    asked = sum(len(message["content"].encode()) for message in seen.messages) // 4 + 1
    said = len(reply.text.encode()) // 4 + 1
    return (
        asked if reply.input_tokens is None else reply.input_tokens,
        said if reply.output_tokens is None else reply.output_tokens,
    )


class _Wire:
    preamble: int
    """Events before the first piece of text."""

    def stream(self, seen: Seen, reply: Reply) -> Iterator[str]:
        raise NotImplementedError

    def whole(self, seen: Seen, reply: Reply) -> dict[str, Any]:
        raise NotImplementedError


class _OpenAI(_Wire):
    preamble = 1
    finishes: dict[str, str] = {"stop": "stop", "length": "length", "filtered": "content_filter"}  # noqa: RUF012

    def _head(self, seen: Seen, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{seen.call}", "object": kind, "created": int(time.time()), "model": seen.body["model"]}

    def _usage(self, seen: Seen, reply: Reply) -> dict[str, Any]:
        asked, said = _tokens(seen, reply)
        cached = {"cached_tokens": reply.cached_tokens}
        return {
            "prompt_tokens": asked,
            "completion_tokens": said,
            "total_tokens": asked + said,
            "prompt_tokens_details": cached,
        }

    def stream(self, seen: Seen, reply: Reply) -> Iterator[str]:
        head = self._head(seen, "chat.completion.chunk")

        def event(delta: dict[str, str], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"

        yield event({"role": "assistant", "content": ""})
        for piece in _pieces(reply.thoughts):
            yield event({"reasoning_content": piece})
        for piece in _pieces(reply.text):
            yield event({"content": piece})
        yield event({}, self.finishes[reply.finish])
        if reply.counted and seen.body.get("stream_options", {}).get("include_usage"):
            yield f"data: {json.dumps({**head, 'choices': [], 'usage': self._usage(seen, reply)})}\n\n"
        yield "data: [DONE]\n\n"

    def whole(self, seen: Seen, reply: Reply) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message, "finish_reason": self.finishes[reply.finish]}
        return {
            **self._head(seen, "chat.completion"),
            "choices": [choice],
            "usage": self._usage(seen, reply),
        }


class _Anthropic(_Wire):
    preamble = 2
    finishes: dict[str, str] = {"stop": "end_turn", "length": "max_tokens", "filtered": "refusal"}  # noqa: RUF012

    def _message(self, seen: Seen, reply: Reply) -> dict[str, Any]:
        asked, said = _tokens(seen, reply)
        # on this wire, input_tokens are those that the cache does not hold
        fresh = max(0, asked - reply.cached_tokens)
        cached = {"cache_read_input_tokens": reply.cached_tokens, "cache_creation_input_tokens": 0}
        return {
            "id": f"msg_{seen.call}",
            "type": "message",
            "role": "assistant",
            "model": seen.body["model"],
            "content": [{"type": "text", "text": reply.text}],
            "stop_reason": self.finishes[reply.finish],
            "stop_sequence": None,
            "usage": {"input_tokens": fresh, "output_tokens": said, **cached},
        }

    def stream(self, seen: Seen, reply: Reply) -> Iterator[str]:
        def event(kind: str, **data: Any) -> str:
            return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"

        message = self._message(seen, reply)
        start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        yield event("message_start", message=start)
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in _pieces(reply.text):
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield event("content_block_stop", index=0)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": message["usage"]["output_tokens"]})
        yield event("message_stop")

    def whole(self, seen: Seen, reply: Reply) -> dict[str, Any]:
        return self._message(seen, reply)


_WIRES: dict[str, _Wire] = {"/v1/chat/completions": _OpenAI(), "/v1/messages": _Anthropic()}
