"""The wire formats of the local provider: OpenAI's chat completions and Anthropic's messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Reply:
    """An answer with details. Tokens None: about one per four bytes; counted: whether usage is sent."""

    text: str
    finish: Literal["stop", "length", "filtered"] = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    delay: float = 0.0
    counted: bool = True
    thoughts: str = ""
    """The reasoning before the answer (OpenAI only)."""


@dataclass(frozen=True)
class Fault:
    """A fault in place of an answer. after: pieces of `text` sent before a stall or a cut."""

    kind: Literal["status", "stall", "cut", "garbage"]
    code: int = 0
    retry_after: float | None = None
    message: str = ""
    after: int = 1
    clean: bool = False
    text: str = "the beginning of an answer that never ends "
    name: str = ""
    """The provider's own name of the error."""


@dataclass
class Seen:
    """One request as received. answered: whether the whole answer was sent."""

    call: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    messages: list[dict[str, str]]
    answered: bool = False


def _pieces(text: str) -> list[str]:
    """Splits a text into a few pieces, as a model streams it; code points stay whole."""
    size = max(1, len(text) // 5 + 1)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _tokens(seen: Seen, reply: Reply) -> tuple[int, int]:
    asked = sum(len(message["content"].encode()) for message in seen.messages) // 4 + 1
    said = len(reply.text.encode()) // 4 + 1
    return (
        asked if reply.input_tokens is None else reply.input_tokens,
        said if reply.output_tokens is None else reply.output_tokens,
    )


class ProviderWire:
    preamble: int
    """Events before the first piece of text."""

    def stream(self, seen: Seen, reply: Reply) -> Iterator[str]:
        raise NotImplementedError

    def whole(self, seen: Seen, reply: Reply) -> dict[str, Any]:
        raise NotImplementedError


class OpenAIWire(ProviderWire):
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


class AnthropicWire(ProviderWire):
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


WIRES: dict[str, ProviderWire] = {"/v1/chat/completions": OpenAIWire(), "/v1/messages": AnthropicWire()}
