"""The client against a real HTTP server: answers, equal calls, the budget, interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from hipwright.errors import HipwrightError, OutOfBudget, ProviderError
from hipwright.llm.call_log import MemoryCallLog
from hipwright.llm.cost.budget import Budget, SpendingLimits
from hipwright.llm.cost.prices import Prices, parse_prices
from hipwright.llm.records import Message, ModelAnswer, Request
from tests.llm.calls.client_tools import WIRES, Opener, asking, scripted
from tests.llm.server import (
    Fault,
    LocalProvider,
    Reply,
    cut,
    refused,
    stall,
)

pytestmark = pytest.mark.usefixtures("provider_keys")


# ---------------------------------------------------------------- both wires


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_comes_as_a_stream_with_its_usage(wire: str, opened: Opener) -> None:
    text = "Grüße\n```python\nprint(1)\n```\n" * 20
    heard: list[tuple[str, dict[str, Any]]] = []
    log = MemoryCallLog()
    with LocalProvider(
        lambda messages, call: Reply(text, input_tokens=70, output_tokens=30, cached_tokens=20)
    ) as server:
        client = opened(log, listener=lambda kind, data: heard.append((kind, data)))
        request = asking(server.spec(wire), temperature=0.25, number=7)
        answer = client.ask(request)
    assert (answer.text, answer.finish, answer.request, answer.attempts) == (text, "stop", request.key, 1)
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cached_tokens) == (70, 30, 20)
    assert answer.model == "small"
    assert log.find(request.key) == answer
    assert log.lost() == []
    [seen] = server.requests
    assert seen.body["stream"] is True
    assert seen.body["temperature"] == 0.25
    assert seen.body["max_tokens" if wire == "anthropic" else "max_completion_tokens"] == 64
    assert seen.messages == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    [(kind, data)] = heard
    assert (kind, data["tokens"], data["number"]) == ("llm_answered", 100, 7)


def test_own_servers_get_the_older_name_of_the_limit_and_earlier_turns(opened: Opener) -> None:
    turns = [("system", "s"), ("user", "u1"), ("assistant", "a1"), ("user", "u2")]
    messages = tuple(Message(role=role, text=text) for role, text in turns)  # type: ignore[arg-type]
    with LocalProvider() as server:
        answer = opened().ask(Request(role="judge", model=server.spec("vllm"), messages=messages, max_tokens=9))
    assert answer.text == "hello"
    assert not answer.priced
    assert server.requests[0].body["max_tokens"] == 9
    assert [(one["role"], one["content"]) for one in server.requests[0].messages] == turns


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("finish", ["length", "filtered"])
def test_why_the_model_stopped_is_reported(wire: str, finish: Any, opened: Opener) -> None:
    with LocalProvider(lambda messages, call: Reply("half an ans", finish=finish)) as server:
        answer = opened().ask(asking(server.spec(wire)))
    assert (answer.text, answer.finish) == ("half an ans", finish)


def test_thoughts_are_no_part_of_the_answer(opened: Opener) -> None:
    with LocalProvider(lambda messages, call: Reply("the answer", thoughts="let me see what")) as server:
        assert opened().ask(asking(server.spec())).text == "the answer"


def test_a_provider_that_counts_nothing_is_taken_to_have_used_all(opened: Opener) -> None:
    budget = Budget(SpendingLimits())
    log = MemoryCallLog()
    with LocalProvider(lambda messages, call: Reply("hi", counted=False)) as server:
        answer = opened(log, budget).ask(asking(server.spec()))
    [reserved] = log.reservations()
    assert answer.usage.input_tokens + answer.usage.output_tokens == reserved.tokens == budget.spent.tokens
    assert answer.usage.output_tokens == 64


# ---------------------------------------------------------------- at most once


def test_an_answered_call_is_never_sent_again(opened: Opener) -> None:
    log = MemoryCallLog()
    with LocalProvider(lambda messages, call: f"answer {call}") as server:
        request = asking(server.spec())
        first = opened(log).ask(request)
        assert opened(log).ask(request) == first  # another client: a resumed run
    assert len(server.requests) == 1


def test_equal_calls_at_once_are_one_call(opened: Opener) -> None:
    with LocalProvider(lambda messages, call: Reply(f"answer {call}", delay=0.05)) as server:
        answers = opened().ask_all([asking(server.spec())] * 6)
    assert [one.text for one in answers if isinstance(one, ModelAnswer)] == ["answer 0"] * 6
    assert len(server.requests) == 1


def test_several_at_once_keep_their_order_and_their_errors(opened: Opener) -> None:
    def reply(messages: list[dict[str, str]], call: int) -> str | Fault:
        text = messages[-1]["content"]
        return refused(400, "no odd ones") if int(text) % 2 else text

    with LocalProvider(reply) as server:
        client = opened(concurrency=4)
        results = client.ask_all([asking(server.spec(), str(index)) for index in range(10)])
        assert client.ask_all([]) == []
    assert [one.text for one in results[::2] if isinstance(one, ModelAnswer)] == ["0", "2", "4", "6", "8"]
    assert [type(one) for one in results[1::2]] == [ProviderError] * 5
    assert server.peak <= 4


# ---------------------------------------------------------------- budget


@pytest.mark.parametrize("wire", WIRES)
def test_the_limit_in_dollars_is_never_passed(wire: str, opened: Opener) -> None:
    prices = Prices(parse_prices(["small=2,8"]))
    limits = SpendingLimits(usd=0.01)
    log, budget = MemoryCallLog(), Budget(limits)
    with LocalProvider(lambda messages, call: Reply("x", input_tokens=150, output_tokens=60, delay=0.01)) as server:
        requests = [asking(server.spec(wire), f"q{index}", number=index) for index in range(40)]
        results = opened(log, budget, prices=prices, concurrency=10).ask_all(requests)
    billed = len(server.requests) * (150 * 2 + 60 * 8) / 1e6
    assert 0.005 < billed <= limits.usd
    assert budget.spent.usd == pytest.approx(billed, abs=1e-9)
    kinds = {type(one) for one in results}
    assert kinds == {ModelAnswer, OutOfBudget}
    assert sum(isinstance(one, ModelAnswer) for one in results) == len(server.requests)
    refusals = log.refusals()
    assert len(refusals) == sum(isinstance(one, OutOfBudget) for one in results)
    assert all(one.priced for one in results if isinstance(one, ModelAnswer))


def test_a_retry_that_would_pass_the_limit_is_not_sent(opened: Opener) -> None:
    one = asking("compatible:small@http://127.0.0.1:1/v1")
    _, tokens, _ = Prices().bound(one.model, one.messages, one.max_tokens)
    budget = Budget(SpendingLimits(tokens=tokens * 2 - 1))
    with LocalProvider(scripted(cut(2), "never")) as server, pytest.raises(OutOfBudget):
        opened(budget=budget).ask(asking(server.spec()))
    assert len(server.requests) == 1
    assert budget.spent.tokens == tokens


def test_a_model_that_breaks_its_bound_is_asked_no_more(opened: Opener) -> None:
    log, budget = MemoryCallLog(), Budget(SpendingLimits(tokens=10**6))
    with LocalProvider(lambda messages, call: Reply("dear", output_tokens=5000)) as server:
        client = opened(log, budget)
        assert client.ask(asking(server.spec(), "one")).text == "dear"  # it is paid for
        with pytest.raises(ProviderError, match="counted 50") as caught:
            client.ask(asking(server.spec(), "two"))
    assert caught.value.evidence["kind"] == "bound"
    assert len(server.requests) == 1
    assert budget.spent.tokens > 5000


# ---------------------------------------------------------------- interrupted


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Background jobs of a shell ignore SIGINT; restores the default."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_attempt_as_lost(opened: Opener) -> None:
    main = threading.main_thread().ident
    assert main is not None
    log, budget = MemoryCallLog(), Budget(SpendingLimits(tokens=5000))

    def reply(messages: list[dict[str, str]], call: int) -> Fault:
        signal.pthread_kill(main, signal.SIGINT)
        return stall(2)

    with LocalProvider(reply) as server, pytest.raises(KeyboardInterrupt):
        opened(log, budget).ask(asking(server.spec()))
    [lost] = log.lost()
    assert (budget.spent.tokens, budget.spent.held_tokens) == (lost.tokens, 0)


def test_closing_ends_what_is_under_way(opened: Opener) -> None:
    log, budget, arrived = MemoryCallLog(), Budget(SpendingLimits(tokens=5000)), threading.Event()
    errors: list[HipwrightError] = []

    def reply(messages: list[dict[str, str]], call: int) -> Fault:
        arrived.set()
        return stall(1)

    with LocalProvider(reply) as server:
        client = opened(log, budget)

        def ask() -> None:
            try:
                client.ask(asking(server.spec()))
            except HipwrightError as error:
                errors.append(error)

        asker = threading.Thread(target=ask)
        asker.start()
        assert arrived.wait(10)
        client.close()
        asker.join(10)
        assert not asker.is_alive()
        with pytest.raises(ProviderError, match="closed"):
            client.ask(asking(server.spec(), "later"))
        client.close()
    [error] = errors
    assert isinstance(error, ProviderError)
    assert error.retryable
    assert len(log.lost()) == 1
    assert budget.spent.held_tokens == 0
