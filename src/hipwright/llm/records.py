"""The frozen records of one call to a language model: request, answer, cost."""

from __future__ import annotations

from typing import Literal

from hipwright.records import Record

Finish = Literal["stop", "length", "filtered", "other"]
"""Why the model stopped: by itself, at max_tokens, by the provider's filter, or otherwise."""


class Message(Record, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


class Request(Record, frozen=True, kw_only=True):
    """One call, identified by its key: equal keys are the same call, which is answered at most once.

    role: of the agent ("translator", ...). number: of its proposal, -1 for none. index: of the call within the
    proposal. model: the spec from `Lineup.choose`, without secrets. temperature: None for the provider's default.
    """

    role: str
    number: int = -1
    index: int = 0
    model: str
    messages: tuple[Message, ...]
    max_tokens: int = 8192
    temperature: float | None = None


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of one call by the provider's count. cached_tokens: the part of the input read from its cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class ModelAnswer(Record, frozen=True, kw_only=True):
    """The answer to the request with key `request`.

    cost_usd: without failed attempts. priced: False if no price is known (cost_usd is then 0). model: the provider's
    name for it. seconds: from the first attempt to the last token; attempts: 1 without retries.
    """

    request: str
    text: str
    finish: Finish = "stop"
    usage: Usage = Usage()
    cost_usd: float = 0.0
    priced: bool = False
    model: str = ""
    seconds: float = 0.0
    attempts: int = 1


class Reserved(Record, frozen=True, kw_only=True):
    """An attempt about to be sent, with upper bounds of its cost and of its tokens (input plus output)."""

    request: Request
    cost_usd: float
    tokens: int
