"""The client and the failures of providers: retries, refusals, outages; against a real HTTP server."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hipwright.errors import BadInput, ProviderError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.client import MAX_GARBAGE_ANSWERS, MAX_LOST_ATTEMPTS
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.cost.prices import Prices, parse_prices
from hipwright.llm.records import ModelAnswer, Reserved
from tests.llm.calls.client_tools import WIRES, Clock, Opener, asking, scripted
from tests.llm.server import (
    KEY,
    Fault,
    LocalProvider,
    Reply,
    cut,
    garbage,
    rate_limit,
    refused,
    server_error,
    stall,
    wrong_key,
)

pytestmark = pytest.mark.usefixtures("provider_keys")


# ---------------------------------------------------------------- faults


class Watched(MemoryCallLog):
    """Checks at every reservation that spent + held stays below the limit."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self.budget = budget

    def reserve(self, reserved: Reserved) -> None:
        spent = self.budget.spent
        assert self.budget.limits.tokens is not None
        assert spent.tokens + spent.held_tokens <= self.budget.limits.tokens
        assert self.budget.limits.usd is not None
        assert spent.usd + spent.held_usd <= self.budget.limits.usd + 1e-9
        super().reserve(reserved)


def unreliable(seed: int) -> Callable[[list[dict[str, str]], int], str | Reply | Fault]:
    """30 % 429, 10 % 5xx, 10 % stalls, 10 % truncated streams; otherwise the answer repeats the question."""
    rng, lock = random.Random(seed), threading.Lock()
    faults: list[Callable[[], Fault]] = [stall, lambda: stall(0), cut, lambda: cut(2, clean=True)]

    def reply(messages: list[dict[str, str]], call: int) -> str | Reply | Fault:
        with lock:
            draw, which, code = rng.random(), rng.choice(faults), rng.choice([500, 502, 503, 529])
        if draw < 0.3:
            return rate_limit(0.05 if draw < 0.2 else None)
        if draw < 0.4:
            return server_error(code)
        return which() if draw < 0.6 else Reply(f"echo {messages[-1]['content']}", delay=0.005)

    return reply


@pytest.mark.parametrize(
    "seed", [2, pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.exhaustive)]
)
def test_all_calls_complete_although_the_provider_often_fails(seed: int, opened: Opener) -> None:
    count = 48
    with LocalProvider(unreliable(seed)) as server:
        specs = [server.spec("openai"), server.spec("anthropic")]
        prices = Prices(parse_prices(["small=1,4"]))
        budget = Budget(SpendingLimits(usd=1.0, tokens=count * 2000))
        log = Watched(budget)
        client = opened(log, budget, prices=prices, concurrency=12, idle_seconds=1.0, first_seconds=1.5)
        requests = [asking(specs[index % 2], f"question {index}", number=index) for index in range(count)]
        answers = client.ask_all(requests)
    assert [one.text for one in answers if isinstance(one, ModelAnswer)] == [f"echo question {i}" for i in range(count)]
    assert server.peak <= 24
    for index in range(count):  # after the answer to a question, it was never asked again
        sent = [one.answered for one in server.requests if one.messages[-1]["content"] == f"question {index}"]
        assert sent == [False] * (len(sent) - 1) + [True]
    assert len(server.requests) > count * 1.4
    # what is counted: every answer at its price, every attempt that may have been billed at its bound
    again = Budget.resumed(budget.limits, log)
    assert again.spent == budget.spent
    assert budget.spent.held_tokens == 0
    assert log.lost()
    assert max(one.attempts for one in answers if isinstance(one, ModelAnswer)) > 2


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("fault", "billed"),
    [
        (rate_limit(), False),
        (rate_limit(0.2), False),
        (server_error(500), False),
        (server_error(503), False),
        (server_error(529), False),
        (server_error(502), True),
        (server_error(504), True),
        (stall(0), True),
        (stall(2), True),
        (cut(0), True),
        (cut(2), True),
        (cut(1, clean=True), True),
        (garbage(), True),
    ],
    ids=str,
)
def test_one_fault_is_overcome_and_counts_if_it_may_have_been_billed(
    wire: str, fault: Fault, billed: bool, opened: Opener
) -> None:
    log, budget = MemoryCallLog(), Budget(SpendingLimits(tokens=5000))
    with LocalProvider(scripted(fault, "well then")) as server:
        silent_before = fault.kind == "stall" and not fault.after
        client = opened(log, budget, idle_seconds=0.5, first_seconds=0.5 if silent_before else 40.0)
        answer = client.ask(asking(server.spec(wire)))
    assert answer.seconds < 30  # once it has begun to answer, a model may not pause for long
    assert (answer.text, answer.attempts) == ("well then", 2)
    lost = log.lost()
    assert len(lost) == billed
    assert budget.spent.tokens == answer.usage.input_tokens + answer.usage.output_tokens + sum(r.tokens for r in lost)


def test_a_model_may_think_longer_than_it_may_pause(opened: Opener) -> None:
    with LocalProvider(lambda messages, call: Reply("at last", delay=0.8)) as server:
        answer = opened(idle_seconds=0.5, first_seconds=30.0).ask(asking(server.spec()))
    assert (answer.text, answer.attempts) == ("at last", 1)


def test_the_wait_that_a_provider_asks_for_is_kept(opened: Opener) -> None:
    clock = Clock()
    with LocalProvider(scripted(rate_limit(30), rate_limit(7.5), "now")) as server:
        answer = opened(clock=clock, sleep=clock.sleep).ask(asking(server.spec()))
    assert answer.text == "now"
    assert clock.slept[0] >= 30
    assert clock.slept[1] >= 7.5
    assert answer.seconds >= 37.5


def test_a_named_wait_holds_for_other_calls_to_the_same_model(opened: Opener) -> None:
    clock, arrived = Clock(), threading.Event()
    gate = threading.Event()

    def sleep(seconds: float) -> None:
        arrived.set()
        gate.wait(10)
        clock.sleep(seconds)

    with LocalProvider(scripted(rate_limit(100), "a", "b")) as server:
        client = opened(clock=clock, sleep=sleep)
        first = threading.Thread(target=client.ask, args=(asking(server.spec(), "one"),))
        first.start()
        assert arrived.wait(10)
        second = threading.Thread(target=client.ask, args=(asking(server.spec(), "two"),))
        second.start()
        time.sleep(0.2)
        assert len(server.requests) == 1  # the second waits, though it was never refused itself
        gate.set()
        first.join(10)
        second.join(10)
    assert len(server.answered) == 2


# ---------------------------------------------------------------- refusals without a retry


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (wrong_key(), "key", "_API_KEY"),
        (refused(403, "no access"), "key", "_API_KEY"),
        (refused(404, "no such model"), "model", "--llm"),
        (refused(400, "temperature is not supported"), "request", "--llm"),
        (refused(413, "too large"), "request", "--llm"),
    ],
    ids=lambda value: str(getattr(value, "code", value)),
)
def test_a_refusal_is_reported_at_once(wire: str, fault: Fault, kind: str, says: str, opened: Opener) -> None:
    log, budget = MemoryCallLog(), Budget(SpendingLimits(tokens=5000))
    with LocalProvider(scripted(fault, "never")) as server, pytest.raises(ProviderError) as caught:
        opened(log, budget).ask(asking(server.spec(wire)))
    assert len(server.requests) == 1
    assert not caught.value.retryable
    assert caught.value.exit_code == 3
    assert caught.value.evidence["kind"] == kind
    assert fault.message in caught.value.message
    assert says in caught.value.hint
    assert (budget.spent.tokens, budget.spent.held_tokens) == (0, 0)
    assert [one.message for one in log.refusals()] == [caught.value.message]


def test_a_key_never_appears_in_an_error_a_log_or_a_request(opened: Opener) -> None:
    log = MemoryCallLog()
    heard: list[Any] = []
    faults = scripted(server_error(500), refused(400, f"the key {KEY} may not do this"), f"your key is {KEY}")
    with LocalProvider(faults, key=KEY) as server:
        client = opened(log, listener=lambda kind, data: heard.append(data))
        with pytest.raises(ProviderError) as caught:
            client.ask(asking(server.spec("openai"), f"say {KEY}"))
        answer = client.ask(asking(server.spec("anthropic"), f"say {KEY}"))
    error = caught.value
    assert error.__context__ is None  # a traceback would print what the SDK said
    assert "<secret>" in error.message
    assert answer.text == "your key is <secret>"
    logged = [log.reservations(), log.refusals(), log.answers(), heard, [one.body for one in server.requests]]
    assert KEY not in f"{error} {error.hint} {error.evidence} {logged}"
    assert all(KEY in f"{one.headers}" for one in server.requests)  # it was sent where it belongs


def test_a_wrong_key_names_the_variable_of_ones_own_server(opened: Opener) -> None:
    with LocalProvider(key="another") as server, pytest.raises(ProviderError) as caught:
        opened().ask(asking(server.spec("vllm")))
    assert "VLLM_API_KEY" in caught.value.hint


def test_a_folder_without_a_checkpoint_is_bad_input(opened: Opener) -> None:
    with pytest.raises(BadInput, match="no checkpoint"):
        opened().ask(asking("local:/nowhere/checkpoint"))


@pytest.mark.parametrize("fault", [garbage(), cut(2)], ids=str)
def test_a_call_that_only_breaks_is_given_up(fault: Fault, opened: Opener) -> None:
    log = MemoryCallLog()
    with LocalProvider(lambda messages, call: fault) as server, pytest.raises(ProviderError) as caught:
        opened(log).ask(asking(server.spec()))
    assert (
        len(server.requests)
        == (MAX_GARBAGE_ANSWERS if fault.kind == "garbage" else MAX_LOST_ATTEMPTS)
        == len(log.lost())
    )
    assert not caught.value.retryable
    assert server.base_url in caught.value.hint


# ---------------------------------------------------------------- outage


def test_a_provider_that_stays_away_pauses_the_run(opened: Opener) -> None:
    clock, log = Clock(), MemoryCallLog()
    with LocalProvider(lambda messages, call: server_error(503)) as server:
        client = opened(log, clock=clock, sleep=clock.sleep, outage_seconds=600.0)
        with pytest.raises(ProviderError, match="no call answered") as caught:
            client.ask(asking(server.spec()))
    assert caught.value.retryable
    assert "hipwright resume" in caught.value.hint
    assert caught.value.evidence["kind"] == "outage"
    assert 600 <= clock.now - 1000 <= 600 + 61
    assert 10 < len(server.requests) < 60
    assert log.refusals() == []  # the call is still open
    assert log.lost() == []  # it was reserved once for all its unbilled attempts, and taken back


def test_a_server_that_is_not_there_is_an_outage_that_cost_nothing(opened: Opener) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    clock, budget = Clock(), Budget(SpendingLimits(tokens=5000))
    client = opened(budget=budget, clock=clock, sleep=clock.sleep, outage_seconds=30.0)
    with pytest.raises(ProviderError) as caught:
        client.ask(asking(f"vllm:m@http://127.0.0.1:{port}/v1"))
    assert caught.value.retryable
    assert f"127.0.0.1:{port}" in caught.value.hint
    assert (budget.spent.tokens, budget.spent.held_tokens) == (0, 0)


def test_time_in_which_nobody_asks_is_no_outage(opened: Opener) -> None:
    clock = Clock()
    with LocalProvider(scripted(*[garbage()] * MAX_GARBAGE_ANSWERS, server_error(503), "back")) as server:
        client = opened(clock=clock, sleep=clock.sleep, outage_seconds=60.0)
        with pytest.raises(ProviderError, match="given up"):
            client.ask(asking(server.spec(), "one"))
        clock.now += 5000
        assert client.ask(asking(server.spec(), "two")).text == "back"


def test_a_wait_longer_than_an_outage_pauses_at_once(opened: Opener) -> None:
    with LocalProvider(lambda messages, call: rate_limit(86400)) as server, pytest.raises(ProviderError) as caught:
        opened(outage_seconds=600.0).ask(asking(server.spec()))
    assert caught.value.retryable
    assert "86400" in caught.value.message
    assert len(server.requests) == 1
