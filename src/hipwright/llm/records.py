"""The frozen records of one call to a language model: what was asked, what came back, what it cost."""

from __future__ import annotations

from typing import Literal

from hipwright.records import Record

Finish = Literal["stop", "length", "filtered", "other"]
"""Why the model stopped: by itself, at max_tokens, held back by the provider's filter, or anything else."""


class Message(Record, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str


class Request(Record, frozen=True, kw_only=True):
    """One call. Its key identifies it: the same key is the same call, and is answered at most once.

    role: the agent's ("translator", "optimizer", ...). number: the proposal it belongs to, -1 for none. index: the nth
    call for that proposal. model: the spec as `Lineup.choose` gave it, without a secret. temperature: None leaves it to
    the provider.
    """

    role: str
    number: int = -1
    index: int = 0
    model: str
    messages: tuple[Message, ...]
    max_tokens: int = 8192
    temperature: float | None = None


class Usage(Record, frozen=True, kw_only=True):
    """Tokens of one call as the provider counts them. `cached_tokens` are those of the input read from its cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class ModelAnswer(Record, frozen=True, kw_only=True):
    """What came back for the request with key `request`.

    cost_usd: dollars of this call, its failed attempts apart. priced: False where no price is known (cost_usd is then
    0). model: as the provider names it. seconds: from the first attempt to the last token; attempts: 1 without retries.
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
    """An attempt about to be sent: an upper bound of its cost in dollars and of its tokens (in and out together)."""

    request: Request
    cost_usd: float
    tokens: int
