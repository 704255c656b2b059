"""Shared by the tests of the client: a clock, scripted replies, requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hipwright.llm.client import Client
from hipwright.llm.records import Message, Request
from tests.llm.server import (
    Fault,
    Reply,
)

WIRES = ("openai", "anthropic")
Opener = Callable[..., Client]


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds
        self.slept.append(seconds)


def asking(model: str, text: str = "hello", **fields: Any) -> Request:
    messages = (Message(role="system", text="be brief"), Message(role="user", text=text))
    return Request(role="translator", model=model, messages=messages, **{"max_tokens": 64, **fields})


def scripted(*replies: str | Reply | Fault) -> Callable[[list[dict[str, str]], int], str | Reply | Fault]:
    """Returns the replies in turn, the last one repeatedly."""
    return lambda messages, call: replies[min(call, len(replies) - 1)]
