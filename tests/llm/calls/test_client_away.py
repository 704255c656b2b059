"""The client of callers that go on without a model: no call waits twice for one that stays away."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hipwright.errors import ProviderError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import AWAY_SECONDS
from tests.llm.calls.client_tools import Clock, Opener, asking, scripted
from tests.llm.server import Fault, LocalProvider, Reply, refused, server_error, stall, wrong_key


def test_a_model_that_stays_away_is_left_alone_for_longer_each_time(opened: Opener) -> None:
    clock, log, told = Clock(), MemoryCallLog(), list[dict[str, Any]]()
    script: list[str | Reply | Fault] = [server_error(503)]

    def listen(kind: str, data: dict[str, Any]) -> None:
        if kind == "llm_away":
            told.append(data)

    with LocalProvider(lambda messages, call: script[0]) as server:
        client = opened(log, clock=clock, sleep=clock.sleep, outage_seconds=60.0, pauses=False, listener=listen)

        def fails(text: str) -> tuple[int, float]:
            requests, began = len(server.requests), clock.now
            with pytest.raises(ProviderError, match="no call answered"):
                client.ask(asking(server.spec(), text))
            return len(server.requests) - requests, clock.now - began

        sent, took = fails("one")
        assert sent > 1 and 60 <= took <= 121
        assert fails("two") == (0, 0.0), "another call waits for nothing"
        clock.now += AWAY_SECONDS["outage"]
        assert fails("three")[0] > 1
        clock.now += AWAY_SECONDS["outage"]
        assert fails("four") == (0, 0.0), "the second time it is left alone for longer"
        clock.now += AWAY_SECONDS["outage"]
        script[0] = "back"
        assert client.ask(asking(server.spec(), "five")).text == "back"
    assert [one["seconds"] for one in told] == [AWAY_SECONDS["outage"]] * 2
    assert len(log.refusals()) == 4 and log.lost() == [], "each call has ended, and cost nothing"


def test_a_server_that_says_nothing_holds_one_call(opened: Opener) -> None:
    began = time.monotonic()
    with LocalProvider(lambda messages, call: stall(0)) as server:
        client = opened(outage_seconds=0.5, first_seconds=1.0, pauses=False)
        for text in ("one", "two", "three"):
            with pytest.raises(ProviderError):
                client.ask(asking(server.spec(), text))
        assert time.monotonic() - began < 5 and len(server.requests) == 1


def test_a_refused_key_is_used_once(opened: Opener) -> None:
    with LocalProvider(lambda messages, call: wrong_key()) as server:
        client = opened(pauses=False)
        for text in ("one", "two"):
            with pytest.raises(ProviderError):
                client.ask(asking(server.spec(), text))
    assert len(server.requests) == 1


def test_a_request_that_is_refused_says_nothing_of_the_next(opened: Opener) -> None:
    with LocalProvider(scripted(refused(400), "fine")) as server:
        client = opened(pauses=False)
        with pytest.raises(ProviderError):
            client.ask(asking(server.spec(), "one"))
        assert client.ask(asking(server.spec(), "two")).text == "fine"
